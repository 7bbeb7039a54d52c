package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"strconv"
	"sync"

	"windrow.io/gobrpc/mcnflag"
	"windrow.io/gobrpc/rpcdriver"
)

// driver answers docker-machine's methods. What it answers is what it was last given as its configuration, in the form
// that the method has, so the caller can check it.
type driver struct {
	lock   sync.Mutex
	random chance
	config []byte
	told   string
	beats  chan struct{}
}

type none = struct{}

func (d *driver) text() string {
	d.lock.Lock()
	defer d.lock.Unlock()
	return string(d.config)
}

func (d *driver) GetVersion(_ *none, reply *int) error { *reply = 1; return nil }

func (d *driver) Heartbeat(_ *none, _ *none) error {
	select {
	case d.beats <- none{}:
	default:
	}
	return nil
}

// Create answers only after a heartbeat that came after it.
func (d *driver) Create(_ *none, _ *none) error { <-d.beats; return nil }

func (d *driver) Close(_ *none, _ *none) error { os.Exit(0); return nil }

func (d *driver) SetConfigRaw(data []byte, _ *none) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.config = data
	return nil
}

func (d *driver) GetConfigRaw(_ *none, reply *[]byte) error { *reply = []byte(d.text()); return nil }

func (d *driver) GetMachineName(_ *none, reply *string) error { *reply = d.text(); return nil }

func (d *driver) GetIP(_ *none, reply *string) error { return errors.New(d.text()) }

func (d *driver) GetSSHPort(_ *none, reply *int) (err error) {
	*reply, err = strconv.Atoi(d.text())
	return err
}

func (d *driver) GetCreateFlags(_ *none, reply *[]mcnflag.Flag) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	*reply = d.random.flags()
	d.told = tell(*reply)
	return nil
}

func (d *driver) SetConfigFromFlags(options *rpcdriver.DriverOptions, _ *none) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.told = tell(*options)
	return nil
}

// recorder returns what the driver received last.
type recorder struct{ driver *driver }

func (r *recorder) LastValue(_ *none, reply *string) error {
	r.driver.lock.Lock()
	defer r.driver.lock.Unlock()
	*reply = r.driver.told
	return nil
}

func plugin(seed int64) error {
	one := &driver{random: newChance(seed), beats: make(chan struct{})}
	server := rpc.NewServer()
	for name, service := range map[string]interface{}{
		"RPCServerDriver": one, "RpcServerDriver": one, "Recorder": &recorder{one},
	} {
		if err := server.RegisterName(name, service); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle(rpc.DefaultRPCPath, server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}
