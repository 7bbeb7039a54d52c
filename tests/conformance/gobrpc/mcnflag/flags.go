// Package mcnflag has the four kinds of create flags, with the fields that docker-machine's have.
//
// Its name matters: Go's gob names a registered pointer by its package and type, and hosts know these flags as
// *mcnflag.StringFlag and so on.
package mcnflag

import "encoding/gob"

// Flag is what a driver lists and a host reads.
type Flag interface {
	Default() interface{}
}

type StringFlag struct {
	Name   string
	Usage  string
	EnvVar string
	Value  string
}

type IntFlag struct {
	Name   string
	Usage  string
	EnvVar string
	Value  int
}

type BoolFlag struct {
	Name   string
	Usage  string
	EnvVar string
}

type StringSliceFlag struct {
	Name   string
	Usage  string
	EnvVar string
	Value  []string
}

func (f StringFlag) Default() interface{}      { return f.Value }
func (f IntFlag) Default() interface{}         { return f.Value }
func (f BoolFlag) Default() interface{}        { return false }
func (f StringSliceFlag) Default() interface{} { return f.Value }

func init() {
	gob.Register(new(StringFlag))
	gob.Register(new(IntFlag))
	gob.Register(new(BoolFlag))
	gob.Register(new(StringSliceFlag))
}
