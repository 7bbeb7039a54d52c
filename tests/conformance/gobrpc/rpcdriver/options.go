// Package rpcdriver has the options that a host hands to a driver. As in mcnflag, the package's name is on the wire.
package rpcdriver

import "encoding/gob"

// DriverOptions is the type of SetConfigFromFlags's argument, an interface.
type DriverOptions interface {
	Len() int
}

// RPCFlags is what is always in it.
type RPCFlags struct {
	Values map[string]interface{}
}

func (f RPCFlags) Len() int { return len(f.Values) }

func init() {
	gob.Register(new(RPCFlags))
}
