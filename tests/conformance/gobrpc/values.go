package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"windrow.io/gobrpc/mcnflag"
	"windrow.io/gobrpc/rpcdriver"
)

// A value is told as one line of JSON that the other language writes too. Strings are told as base64, since Go's may
// hold any bytes, and numbers as text, since JSON's are not exact.

func tell(value interface{}) string {
	line, err := json.Marshal(plain(value))
	if err != nil {
		panic(err)
	}
	return string(line)
}

func plain(value interface{}) interface{} {
	switch value := value.(type) {
	case string:
		return base64.StdEncoding.EncodeToString([]byte(value))
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	case int:
		return strconv.Itoa(value)
	case bool:
		return value
	case []string:
		all := []interface{}{}
		for _, each := range value {
			all = append(all, plain(each))
		}
		return all
	case []mcnflag.Flag:
		all := []interface{}{}
		for _, each := range value {
			all = append(all, plain(each))
		}
		return all
	case rpcdriver.DriverOptions:
		return plainOptions(value)
	}
	return plainFlag(value)
}

func plainFlag(value interface{}) interface{} {
	switch flag := value.(type) {
	case mcnflag.StringFlag:
		return plainFlag(&flag)
	case mcnflag.IntFlag:
		return plainFlag(&flag)
	case mcnflag.BoolFlag:
		return plainFlag(&flag)
	case mcnflag.StringSliceFlag:
		return plainFlag(&flag)
	case *mcnflag.StringFlag:
		return []interface{}{"string", plain(flag.Name), plain(flag.Usage), plain(flag.EnvVar), plain(flag.Value)}
	case *mcnflag.IntFlag:
		return []interface{}{"int", plain(flag.Name), plain(flag.Usage), plain(flag.EnvVar), plain(flag.Value)}
	case *mcnflag.BoolFlag:
		return []interface{}{"bool", plain(flag.Name), plain(flag.Usage), plain(flag.EnvVar), false}
	case *mcnflag.StringSliceFlag:
		return []interface{}{"strings", plain(flag.Name), plain(flag.Usage), plain(flag.EnvVar), plain(flag.Value)}
	}
	panic(fmt.Sprintf("a value of type %T", value))
}

func plainOptions(options rpcdriver.DriverOptions) interface{} {
	var flags rpcdriver.RPCFlags
	switch options := options.(type) {
	case *rpcdriver.RPCFlags:
		flags = *options
	case rpcdriver.RPCFlags:
		flags = options
	}
	told := map[string]interface{}{}
	for name, value := range flags.Values {
		switch value.(type) {
		case string, int, bool, []string: // a driver takes any other for missing
			told[plain(name).(string)] = []interface{}{fmt.Sprintf("%T", value), plain(value)}
		}
	}
	return told
}
