package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"

	harvester "github.com/harvester/harvester/pkg/apis/harvesterhci.io/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/util/openapi"
	"kubevirt.io/kubevirt/pkg/virt-api/definitions"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

// tables is what the emulator knows of the types that webhooks decode, `go_types.json` in its package `kit`: printed by
//
//	admission --types
type tables struct {
	// The struct of each kind.
	Kinds map[string]string `json:"kinds"`
	// Of a struct, by the name in JSON: how a value is decoded, and written.
	Types map[string]map[string]string `json:"types"`
	// What KubeVirt's OpenAPI requires in a VirtualMachine, where nothing stands in for it, and enumerates, by struct.
	Required map[string][]string            `json:"required"`
	Enums    map[string]map[string][]string `json:"enums"`
	// Of a VirtualMachine's spec in the CustomResourceDefinition, without descriptions.
	Schema any `json:"schema"`
}

var roots = []any{
	harvester.VirtualMachineImage{}, harvester.VirtualMachineTemplateVersion{}, harvester.KeyPair{}, harvester.ResourceQuota{},
	harvester.Setting{}, kubevirtv1.VirtualMachine{}, kubevirtv1.VirtualMachineInstance{},
	kubevirtv1.VirtualMachineInstanceMigration{}, corev1.PersistentVolumeClaim{}, storagev1.StorageClass{},
}

// Types that decode themselves from one value.
var special = map[string]string{
	"Time": "time", "MicroTime": "microtime", "Quantity": "quantity", "IntOrString": "intorstring", "Duration": "duration",
	"FieldsV1": "json", "RawExtension": "json",
}

func elementOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

var packages = map[string]string{}

// nameOf tells a struct from those of other packages.
func nameOf(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	name := parts[len(parts)-2] + "." + t.Name()
	switch {
	case t.PkgPath() == "kubevirt.io/api/core/v1":
		name = "kubevirt." + t.Name()
	case strings.HasPrefix(t.PkgPath(), "kubevirt.io/"):
		name = "cdi." + t.Name()
	}
	if before, known := packages[name]; known && before != t.PkgPath() {
		panic(fmt.Sprintf("%s is both of %s and %s", name, before, t.PkgPath()))
	}
	packages[name] = t.PkgPath()
	return name
}

func (made *tables) kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return made.kindOf(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + made.kindOf(t.Elem())
	case reflect.Map:
		return "{}" + made.kindOf(t.Elem())
	case reflect.Struct:
		if known, ok := special[t.Name()]; ok {
			return known
		}
		made.read(t)
		return nameOf(t)
	case reflect.Interface:
		return "json"
	default:
		return t.Kind().String()
	}
}

// described is how a field is decoded: "*" before it where it may be left nil, and after "=" how Go calls its type where that
// does not follow.
func (made *tables) described(field reflect.StructField) string {
	kind, t, pointer := made.kindOf(field.Type), elementOf(field.Type), ""
	if field.Type.Kind() == reflect.Pointer {
		pointer = "*"
	}
	if _, ok := special[t.Name()]; ok || kind == "json" || t.String() == usual(kind) {
		return pointer + kind
	}
	return pointer + kind + "=" + t.String()
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

func (made *tables) read(t reflect.Type) {
	if _, ok := made.Types[nameOf(t)]; ok {
		return
	}
	fields := map[string]string{}
	made.Types[nameOf(t)] = fields
	// One that decodes itself does so through a type of its own: what is told of its fields bears the name of the type around.
	if decoder, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		var wrong *json.UnmarshalTypeError
		if errors.As(decoder.UnmarshalJSON([]byte("1")), &wrong) {
			fields["*"] = "json=" + wrong.Type.String()
		}
	}
	made.readFields(fields, t, "")
}

// readFields reads those of embedded structs, too, by which way Go names them in what it tells.
func (made *tables) readFields(fields map[string]string, t reflect.Type, way string) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || !field.IsExported() {
			continue
		}
		if inner := elementOf(field.Type); tag == "" && field.Anonymous && inner.Kind() == reflect.Struct {
			made.readFields(fields, inner, way+field.Name+".")
			continue
		}
		if tag == "" {
			tag = field.Name
		}
		fields[tag] = made.described(field)
		if strings.Contains(options, "omitempty") {
			fields[tag] += " omitempty"
		}
		if way != "" {
			fields[tag] += " @" + way
		}
	}
}

// readOpenAPI finds the definitions of a struct and of what is in it: KubeVirt's by the last part of its package and its name,
// Kubernetes' by the whole.
func (made *tables) readOpenAPI(t reflect.Type, described *spec.Swagger, done map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		made.readOpenAPI(t.Elem(), described, done)
		return
	}
	if _, ok := special[t.Name()]; ok || t.Kind() != reflect.Struct || done[nameOf(t)] {
		return
	}
	done[nameOf(t)] = true
	for i := range t.NumField() {
		if t != reflect.TypeFor[kubevirtv1.VirtualMachine]() || t.Field(i).Name != "Status" {
			made.readOpenAPI(t.Field(i).Type, described, done)
		}
	}
	found, known := described.Definitions[strings.ReplaceAll(t.PkgPath(), "/", ".")+"."+t.Name()]
	if !known {
		if found, known = described.Definitions[t.String()]; !known {
			return
		}
	}
	for _, name := range found.Required {
		// Where a reference stands its default is lost, and any other default will do.
		if property := found.Properties[name]; property.Default == nil || property.Ref.String() != "" {
			made.Required[nameOf(t)] = append(made.Required[nameOf(t)], name)
		}
	}
	enums := map[string][]string{}
	for name, property := range found.Properties {
		for _, value := range property.Enum {
			enums[name] = append(enums[name], fmt.Sprint(value))
		}
	}
	if len(enums) > 0 {
		made.Enums[nameOf(t)] = enums
	}
}

func withoutDescriptions(value any, named bool) any {
	switch found := value.(type) {
	case map[string]any:
		for key, inner := range found {
			if key == "description" && !named {
				delete(found, key)
			} else {
				found[key] = withoutDescriptions(inner, key == "properties" && !named)
			}
		}
	case []any:
		for place, inner := range found {
			found[place] = withoutDescriptions(inner, false)
		}
	}
	return value
}

func readTypes() (tables, error) {
	made := tables{map[string]string{}, map[string]map[string]string{}, map[string][]string{}, map[string]map[string][]string{}, nil}
	for _, one := range roots {
		t := reflect.TypeOf(one)
		made.read(t)
		made.Kinds[t.Name()] = nameOf(t)
	}
	described := openapi.LoadOpenAPISpec(definitions.ComposeAPIDefinitions())
	made.readOpenAPI(reflect.TypeFor[kubevirtv1.VirtualMachine](), described, map[string]bool{})
	definition, err := components.NewVirtualMachineCrd()
	if err != nil {
		return made, err
	}
	text, err := json.Marshal(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return made, err
	}
	var schema struct {
		Properties struct {
			Spec any `json:"spec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return made, err
	}
	made.Schema = withoutDescriptions(schema.Properties.Spec, false)
	return made, nil
}

func printTypes() {
	made, err := readTypes()
	if err != nil {
		log.Fatal(err)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(made); err != nil {
		log.Fatal(err)
	}
}
