// Prints the JSON fields of the types that the webhooks of Harvester and KubeVirt decode, read by reflection, as
// windrow.emulator.kit.go_types takes them. Run in the folder above as:
//
//	go run ./fields > ../../../../src/windrow/emulator/kit/go_types.json
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"sort"
	"strings"

	harvester "github.com/harvester/harvester/pkg/apis/harvesterhci.io/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

var roots = []any{
	harvester.VirtualMachineImage{}, harvester.VirtualMachineTemplateVersion{}, harvester.KeyPair{}, harvester.ResourceQuota{},
	harvester.Setting{}, kubevirt.VirtualMachine{}, kubevirt.VirtualMachineInstance{},
	kubevirt.VirtualMachineInstanceMigration{}, corev1.PersistentVolumeClaim{}, storagev1.StorageClass{},
}

// Types that decode themselves from one value.
var special = map[string]string{
	"Time": "time", "MicroTime": "microtime", "Quantity": "quantity", "IntOrString": "intorstring", "Duration": "duration",
	"FieldsV1": "json", "RawExtension": "json",
}

var types = map[string]map[string]string{}

func name(t reflect.Type) string {
	if strings.HasPrefix(t.PkgPath(), "kubevirt.io/") {
		return "kubevirt." + t.Name()
	}
	parts := strings.Split(t.PkgPath(), "/")
	if len(parts) > 2 {
		return parts[len(parts)-2] + "." + t.Name()
	}
	return t.Name()
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + kindOf(t.Elem())
	case reflect.Map:
		return "{}" + kindOf(t.Elem())
	case reflect.Struct:
		if known, ok := special[t.Name()]; ok {
			return known
		}
		walk(t)
		return name(t)
	case reflect.Interface:
		return "json"
	default:
		return t.Kind().String()
	}
}

// described is how a value is decoded, and after "=" how Go calls its type where that does not follow.
func described(t reflect.Type) string {
	kind := kindOf(t)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, ok := special[t.Name()]; ok || kind == "json" || t.String() == usual(kind) {
		return kind
	}
	return kind + "=" + t.String()
}

// usual is what windrow.apiserver.types.go_types takes a kind for.
func usual(kind string) string {
	switch {
	case strings.HasPrefix(kind, "[]"):
		return "[]" + usual(kind[2:])
	case strings.HasPrefix(kind, "{}"):
		return "map[string]" + usual(kind[2:])
	case kind == "int":
		return "int64"
	case kind == "bytes":
		return "[]uint8"
	}
	if dot := strings.LastIndex(kind, "."); dot >= 0 {
		return "v1." + kind[dot+1:]
	}
	return kind
}

func walk(t reflect.Type) {
	if _, ok := types[name(t)]; ok {
		return
	}
	fields := map[string]string{}
	types[name(t)] = fields
	// One that decodes itself does so through a type of its own: what is told of its fields bears the name of the type around.
	if decoder, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		var wrong *json.UnmarshalTypeError
		if errors.As(decoder.UnmarshalJSON([]byte("1")), &wrong) {
			fields["*"] = "json=" + wrong.Type.String()
		}
	}
	addFields(fields, t, "")
}

// addFields adds those of embedded structs, too, by which way Go names them in what it tells.
func addFields(fields map[string]string, t reflect.Type, way string) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || !field.IsExported() {
			continue
		}
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if tag == "" && field.Anonymous && inner.Kind() == reflect.Struct {
			addFields(fields, inner, way+field.Name+".")
			continue
		}
		if tag == "" {
			tag = field.Name
		}
		fields[tag] = described(field.Type)
		if way != "" {
			fields[tag] += " @" + way
		}
	}
}

func main() {
	kinds := map[string]string{}
	for _, one := range roots {
		t := reflect.TypeOf(one)
		walk(t)
		kinds[t.Name()] = name(t)
	}
	names := make([]string, 0, len(types))
	for one := range types {
		names = append(names, one)
	}
	sort.Strings(names)
	var out bytes.Buffer
	line := func(v any) string { text, _ := json.Marshal(v); return string(text) }
	out.WriteString("{\n\"kinds\": " + line(kinds) + ",\n\"types\": {\n")
	for i, one := range names {
		fields := new(bytes.Buffer)
		encoder := json.NewEncoder(fields)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(types[one])
		out.WriteString(line(one) + ": " + strings.TrimSpace(fields.String()))
		if i < len(names)-1 {
			out.WriteString(",")
		}
		out.WriteString("\n")
	}
	out.WriteString("}\n}\n")
	_, _ = os.Stdout.Write(out.Bytes())
}
