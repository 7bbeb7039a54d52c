package main

import (
	"math/rand"

	"windrow.io/gobrpc/mcnflag"
	"windrow.io/gobrpc/rpcdriver"
)

type chance struct{ *rand.Rand }

func newChance(seed int64) chance { return chance{rand.New(rand.NewSource(seed))} }

var edges = []int{0, 1, -1, 63, 64, -64, -65, 127, 128, 255, 256, -129, 1 << 31, 1 << 32, 1<<63 - 1, -1 << 63}

func (c chance) int() int {
	switch c.Intn(3) {
	case 0:
		return edges[c.Intn(len(edges))]
	case 1:
		return c.Intn(100000) - 50000
	}
	return int(c.Uint64())
}

func (c chance) text() string {
	switch c.Intn(6) {
	case 0:
		return ""
	case 1:
		return "grün 世界\n"
	case 2:
		return string(c.bytes(300))
	}
	return string(c.bytes(12))
}

func (c chance) bytes(most int) []byte {
	data := make([]byte, c.Intn(most+1))
	c.Read(data)
	return data
}

func (c chance) strings() []string {
	if c.Intn(4) == 0 {
		return nil
	}
	all := make([]string, c.Intn(4))
	for i := range all {
		all[i] = c.text()
	}
	return all
}

// A flag may be a value or a pointer to it: they look the same on the wire.
func (c chance) flag() mcnflag.Flag {
	switch c.Intn(8) {
	case 0:
		return mcnflag.StringFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.text()}
	case 1:
		return &mcnflag.StringFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.text()}
	case 2:
		return mcnflag.IntFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.int()}
	case 3:
		return &mcnflag.IntFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.int()}
	case 4:
		return mcnflag.BoolFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text()}
	case 5:
		return &mcnflag.BoolFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text()}
	case 6:
		return mcnflag.StringSliceFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.strings()}
	}
	return &mcnflag.StringSliceFlag{Name: c.text(), Usage: c.text(), EnvVar: c.text(), Value: c.strings()}
}

func (c chance) flags() []mcnflag.Flag {
	if c.Intn(20) == 0 {
		return nil
	}
	all := make([]mcnflag.Flag, c.Intn(12))
	for i := range all {
		all[i] = c.flag()
	}
	return all
}

func (c chance) option() interface{} {
	switch c.Intn(4) {
	case 0:
		return c.text()
	case 1:
		return c.int()
	case 2:
		return c.Intn(2) == 0
	}
	return c.strings()
}

func (c chance) options(most int) rpcdriver.DriverOptions {
	var values map[string]interface{}
	if c.Intn(20) != 0 {
		values = map[string]interface{}{}
		for count := c.Intn(most + 1); count > 0; count-- {
			values[c.text()] = c.option()
		}
	}
	if c.Intn(2) == 0 {
		return rpcdriver.RPCFlags{Values: values}
	}
	return &rpcdriver.RPCFlags{Values: values}
}
