package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"sigs.k8s.io/yaml"
)

// customKind is a kind of a CustomResourceDefinition, with the API server's own pruning, defaulting and validation.
type customKind struct {
	schema   *structural.Structural
	creating rest.RESTCreateStrategy
	changing rest.RESTUpdateStrategy
	ofStatus rest.RESTUpdateStrategy
	kind     schema.GroupVersionKind
}

func kubevirtDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var made []*apiextensionsv1.CustomResourceDefinition
	for _, build := range []func() (*apiextensionsv1.CustomResourceDefinition, error){
		components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceCrd, components.NewVirtualMachineInstanceMigrationCrd,
	} {
		definition, err := build()
		if err != nil {
			return nil, err
		}
		made = append(made, definition)
	}
	return made, nil
}

func readFolder(folder string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || folder == "" {
		return nil, err
	}
	var made []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		made = append(made, definition)
	}
	return made, nil
}

func readDefinition(object raw) (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	made := &apiextensionsv1.CustomResourceDefinition{}
	return made, json.Unmarshal(text, made)
}

func addCustomKinds(
	to map[schema.GroupVersionKind]strategy, definition *apiextensionsv1.CustomResourceDefinition,
) error {
	for _, version := range definition.Spec.Versions {
		kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind}
		whole := &apiextensions.CustomResourceValidation{}
		err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
			version.Schema, whole, nil)
		if err != nil {
			return err
		}
		read, err := structural.NewStructural(whole.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(whole.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		var status *apiextensions.CustomResourceSubresourceStatus
		var ofStatus validation.SchemaValidator
		if version.Subresources != nil && version.Subresources.Status != nil {
			status = &apiextensions.CustomResourceSubresourceStatus{}
			if inner, ok := whole.OpenAPIV3Schema.Properties["status"]; ok {
				if ofStatus, _, err = validation.NewSchemaValidator(&inner); err != nil {
					return err
				}
			}
		}
		made := customresource.NewStrategy(
			crdserverscheme.NewUnstructuredObjectTyper(), definition.Spec.Scope == apiextensionsv1.NamespaceScoped, kind,
			validator, ofStatus, read, status, nil, nil)
		to[kind] = customKind{read, made, made, customresource.NewStatusStrategy(made), kind}
	}
	return nil
}

func (c customKind) decode(object raw) (runtime.Object, error) {
	copied := runtime.DeepCopyJSON(object)
	defaulting.PruneNonNullableNullsWithoutDefaults(copied, c.schema)
	defaulting.Default(copied, c.schema)
	metadata, found, err := objectmeta.GetObjectMeta(copied, false)
	if err != nil {
		wrapped := fmt.Errorf("%s in version %q cannot be handled as a %s: %v", c.kind.Kind, c.kind.Version, c.kind.Kind, err)
		return nil, apierrors.NewBadRequest(wrapped.Error())
	}
	pruning.Prune(copied, c.schema, true)
	if found {
		if err := objectmeta.SetObjectMeta(copied, metadata); err != nil {
			return nil, err
		}
	}
	return &unstructured.Unstructured{Object: copied}, nil
}

func (c customKind) encode(object runtime.Object) (raw, error) {
	return object.(*unstructured.Unstructured).UnstructuredContent(), nil
}

func (c customKind) creation() rest.RESTCreateStrategy { return c.creating }
func (c customKind) updating() rest.RESTUpdateStrategy { return c.changing }

func (c customKind) updatingStatus() rest.RESTUpdateStrategy { return c.ofStatus }
