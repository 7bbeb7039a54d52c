package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/util/openapi"
	"kubevirt.io/kubevirt/pkg/virt-api/definitions"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

// tables is what the emulator knows of KubeVirt's types: `virtual_machine.json` in its package.
type tables struct {
	// Go's types by their names. Of a struct, by the name in JSON: the type, and "omitempty".
	Types map[string]any `json:"types"`
	// What KubeVirt's OpenAPI requires, where nothing stands in for it, and enumerates, by struct.
	Required map[string][]string            `json:"required"`
	Enums    map[string]map[string][]string `json:"enums"`
	// Of a spec in the CustomResourceDefinition, without descriptions.
	Schema any `json:"schema"`
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	machine     = reflect.TypeFor[kubevirtv1.VirtualMachine]()
)

// The UnmarshalJSON of these structs goes around the usual decoding; that of other types reads a text of its own.
var wrapping = []string{"v1.VirtualMachineInstanceSpec", "v1.DHCPOptions", "v1.PodNetwork"}

type reader struct {
	made     tables
	packages map[string]string
	openapi  *spec.Swagger
}

// nameOf is Go's text of a type, in which those of the core API are told from KubeVirt's by a prefix.
func nameOf(one reflect.Type) string {
	switch {
	case one.Name() != "" && one.PkgPath() == "k8s.io/api/core/v1":
		return "core." + one.String()
	case one.Name() != "":
		return one.String()
	case one.Kind() == reflect.Pointer:
		return "*" + nameOf(one.Elem())
	case one.Kind() == reflect.Slice:
		return "[]" + nameOf(one.Elem())
	case one.Kind() == reflect.Map:
		return "map[string]" + nameOf(one.Elem())
	}
	return one.String()
}

func (r *reader) read(one reflect.Type) {
	switch one.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if one.Name() == "" {
			r.read(one.Elem())
			return
		}
	}
	if one.Name() == "" || one.PkgPath() == "" {
		return
	}
	name := nameOf(one)
	if before, known := r.packages[name]; known {
		if before != one.PkgPath() {
			panic(fmt.Sprintf("%s is both of %s and %s", name, before, one.PkgPath()))
		}
		return
	}
	r.packages[name] = one.PkgPath()
	wraps := slices.Contains(wrapping, name)
	switch {
	case reflect.PointerTo(one).Implements(unmarshaler) && !wraps:
		r.made.Types[name] = "unmarshaler"
	case one.Kind() == reflect.Struct:
		fields := map[string]string{}
		r.made.Types[name] = fields
		r.readFields(one, fields)
		r.readOpenAPI(one)
	case one.Kind() == reflect.Map:
		r.made.Types[name] = "map[string]" + nameOf(one.Elem())
		r.read(one.Elem())
	case one.Kind() == reflect.Slice:
		r.made.Types[name] = "[]" + nameOf(one.Elem())
		r.read(one.Elem())
	default:
		r.made.Types[name] = one.Kind().String()
	}
}

func (r *reader) readFields(one reflect.Type, fields map[string]string) {
	for index := range one.NumField() {
		field := one.Field(index)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			r.readFields(inner, fields)
			continue
		}
		if name == "" || name == "-" || one == machine && name == "status" { // the emulator writes the status itself
			continue
		}
		text := nameOf(field.Type)
		if strings.Contains(options, "omitempty") {
			text += " omitempty"
		}
		fields[name] = text
		r.read(field.Type)
	}
}

// readOpenAPI finds the definition of a struct: KubeVirt's by the last part of its package and its name, Kubernetes' by the whole.
func (r *reader) readOpenAPI(one reflect.Type) {
	whole := strings.ReplaceAll(one.PkgPath(), "/", ".") + "." + one.Name()
	found, known := r.openapi.Definitions[whole]
	if !known {
		if found, known = r.openapi.Definitions[one.String()]; !known {
			return
		}
	}
	for _, name := range found.Required {
		// Where a reference stands its default is lost, and any other default will do.
		if property := found.Properties[name]; property.Default == nil || property.Ref.String() != "" {
			r.made.Required[nameOf(one)] = append(r.made.Required[nameOf(one)], name)
		}
	}
	enums := map[string][]string{}
	for name, property := range found.Properties {
		for _, value := range property.Enum {
			enums[name] = append(enums[name], fmt.Sprint(value))
		}
	}
	if len(enums) > 0 {
		r.made.Enums[nameOf(one)] = enums
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
	r := reader{
		tables{Types: map[string]any{}, Required: map[string][]string{}, Enums: map[string]map[string][]string{}},
		map[string]string{}, openapi.LoadOpenAPISpec(definitions.ComposeAPIDefinitions()),
	}
	r.read(machine)
	definition, err := components.NewVirtualMachineCrd()
	if err != nil {
		return r.made, err
	}
	text, err := json.Marshal(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return r.made, err
	}
	var schema struct {
		Properties struct {
			Spec any `json:"spec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return r.made, err
	}
	r.made.Schema = withoutDescriptions(schema.Properties.Spec, false)
	return r.made, nil
}

func printTypes() {
	made, err := readTypes()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(made)
	}
	if err != nil {
		log.Fatal(err)
	}
}
