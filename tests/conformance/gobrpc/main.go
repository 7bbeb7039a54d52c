// Command gobrpc plays both sides of docker-machine's plugin protocol with Go's own encoding/gob and net/rpc.
//
//	gobrpc write KIND SEED COUNT FILE   a stream of random values on stdout; what they are, a line each, in FILE
//	gobrpc read KIND                    reads a stream from stdin and tells each value, a line each
//	gobrpc judge KIND                   reads a stream a line, in hex, and tells its first value, or why there is none
//	gobrpc plugin SEED                  serves as a plugin does, on loopback; the address is the first line
//	gobrpc host ADDRESS SEED ROUNDS     calls a plugin as a host does, and checks all that it answers
//
// Kinds: flags, options, option (no more than one in the map, so that the bytes are no matter of chance), bytes, text,
// int, strings.
package main

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"windrow.io/gobrpc/mcnflag"
	"windrow.io/gobrpc/rpcdriver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 5 && args[0] == "write":
		return write(args[1], number(args[2]), number(args[3]), args[4])
	case len(args) == 2 && args[0] == "read":
		return read(args[1])
	case len(args) == 2 && args[0] == "judge":
		return judge(args[1])
	case len(args) == 2 && args[0] == "plugin":
		return plugin(int64(number(args[1])))
	case len(args) == 4 && args[0] == "host":
		return host(args[1], int64(number(args[2])), number(args[3]))
	}
	return errors.New("gobrpc write KIND SEED COUNT FILE | read KIND | judge KIND | plugin SEED | host ADDRESS SEED ROUNDS")
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func write(kind string, seed, count int, file string) error {
	told, err := os.Create(file)
	if err != nil {
		return err
	}
	defer told.Close()
	lines := bufio.NewWriter(told)
	defer lines.Flush()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	random, encoder := newChance(int64(seed)), gob.NewEncoder(out)
	for ; count > 0; count-- {
		value, err := random.send(encoder, kind)
		if err != nil {
			return err
		}
		fmt.Fprintln(lines, tell(value))
	}
	return nil
}

func (c chance) send(encoder *gob.Encoder, kind string) (value interface{}, err error) {
	switch kind {
	case "options", "option":
		most := map[string]int{"options": 12, "option": 1}[kind]
		options := c.options(most)
		return options, encoder.Encode(&options) // as net/rpc has it: the address of an interface
	case "flags":
		value = c.flags()
	case "bytes":
		value = c.bytes(400)
	case "text":
		value = c.text()
	case "int":
		value = c.int()
	case "strings":
		value = c.strings()
	}
	return value, encoder.Encode(value)
}

func read(kind string) error {
	decoder := gob.NewDecoder(bufio.NewReader(os.Stdin))
	lines := bufio.NewWriter(os.Stdout)
	defer lines.Flush()
	for {
		value, err := receive(decoder, kind)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(lines, tell(value))
	}
}

func judge(kind string) error {
	streams := bufio.NewScanner(os.Stdin)
	streams.Buffer(nil, 1<<20)
	lines := bufio.NewWriter(os.Stdout)
	defer lines.Flush()
	for streams.Scan() {
		data, err := hex.DecodeString(streams.Text())
		if err != nil {
			return err
		}
		fmt.Fprintln(lines, verdict(data, kind))
		lines.Flush()
	}
	return streams.Err()
}

// verdict is what a host or driver would make of the bytes: a value, or why there is none.
func verdict(data []byte, kind string) (told string) {
	defer func() {
		if reason := recover(); reason != nil {
			told = fmt.Sprintf("! %v", reason)
		}
	}()
	value, err := receive(gob.NewDecoder(bytes.NewReader(data)), kind)
	if err != nil {
		return fmt.Sprintf("! %q", err)
	}
	if value == nil {
		return "! nil"
	}
	return tell(value)
}

func receive(decoder *gob.Decoder, kind string) (interface{}, error) {
	var err error
	switch kind {
	case "flags":
		var value []mcnflag.Flag
		err = decoder.Decode(&value)
		return value, err
	case "options", "option":
		var value rpcdriver.DriverOptions
		err = decoder.Decode(&value)
		return value, err
	case "bytes":
		var value []byte
		err = decoder.Decode(&value)
		return value, err
	case "text":
		var value string
		err = decoder.Decode(&value)
		return value, err
	case "strings":
		var value []string
		err = decoder.Decode(&value)
		return value, err
	}
	var value int
	err = decoder.Decode(&value)
	return value, err
}
