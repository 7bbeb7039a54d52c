package main

import (
	"bytes"
	"fmt"
	"net/rpc"
	"strconv"

	"windrow.io/gobrpc/mcnflag"
)

// caller calls the plugin's methods; the first thing amiss is kept, and all after it is skipped.
type caller struct {
	client *rpc.Client
	random chance
	err    error
}

func (c *caller) call(method string, argument, reply interface{}) {
	if c.err == nil {
		c.err = c.client.Call(method, argument, reply)
	}
}

func (c *caller) want(what string, right bool) {
	if c.err == nil && !right {
		c.err = fmt.Errorf("not as sent: %s", what)
	}
}

func host(address string, seed int64, rounds int) error {
	client, err := rpc.DialHTTP("tcp", address)
	if err != nil {
		return err
	}
	c := &caller{client: client, random: newChance(seed)}
	c.open()
	for ; rounds > 0 && c.err == nil; rounds-- {
		c.config()
		c.options()
		c.flags()
		c.errors()
		c.many()
	}
	c.call("RPCServerDriver.Close", none{}, nil)
	return c.err
}

func (c *caller) open() {
	var version int
	c.call("RPCServerDriver.GetVersion", none{}, &version)
	c.want("the version", version == 1)
	for method, text := range map[string]string{
		"RPCServerDriver.Upgrade": "rpc: can't find method RPCServerDriver.Upgrade",
		"Other.GetVersion":        "rpc: can't find service Other.GetVersion",
		"Upgrade":                 "rpc: service/method request ill-formed: Upgrade",
	} {
		err := c.client.Call(method, none{}, nil)
		c.want(method, err != nil && err.Error() == text)
	}
}

func (c *caller) config() {
	sent := c.random.bytes(400)
	var back []byte
	var text string
	c.call("RPCServerDriver.SetConfigRaw", sent, nil)
	c.call("RPCServerDriver.GetConfigRaw", none{}, &back)
	c.want("the configuration", bytes.Equal(back, sent))
	c.call("RPCServerDriver.GetMachineName", none{}, &text)
	c.want("the machine's name", text == string(sent))
}

func (c *caller) options() {
	options := c.random.options(12)
	var told string
	c.call("RPCServerDriver.SetConfigFromFlags", &options, nil)
	c.call("Recorder.LastValue", none{}, &told)
	c.want("options "+tell(options)+" as "+told, told == tell(options))
}

func (c *caller) flags() {
	var flags []mcnflag.Flag
	var told string
	c.call("RPCServerDriver.GetCreateFlags", none{}, &flags)
	c.call("Recorder.LastValue", none{}, &told)
	c.want("flags "+told+" as "+tell(flags), told == tell(flags))
}

func (c *caller) errors() {
	sent := append([]byte("e"), c.random.bytes(100)...)
	var ip string
	c.call("RPCServerDriver.SetConfigRaw", sent, nil)
	err := c.client.Call("RPCServerDriver.GetIP", none{}, &ip)
	c.want("an error", err != nil && err.Error() == string(sent) && ip == "")
}

// many calls at once; the answers come in the order that the plugin likes.
func (c *caller) many() {
	number := c.random.int()
	c.call("RPCServerDriver.SetConfigRaw", []byte(strconv.Itoa(number)), nil)
	replies := make([]int, 10)
	calls := []*rpc.Call{}
	for i := range replies {
		calls = append(calls, c.client.Go("RPCServerDriver.GetSSHPort", none{}, &replies[i], nil))
	}
	for i, call := range calls {
		<-call.Done
		if c.err == nil {
			c.err = call.Error
		}
		c.want("a number", replies[i] == number)
	}
}
