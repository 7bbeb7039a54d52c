package main

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
)

// coreKind is a built-in kind with the defaults and the validation of Kubernetes.
type coreKind struct {
	kind     schema.GroupVersionKind
	creating rest.RESTCreateStrategy
	changing rest.RESTUpdateStrategy
}

func addCoreKinds(to map[schema.GroupVersionKind]strategy) {
	add := func(group, kind string, creating rest.RESTCreateStrategy, changing rest.RESTUpdateStrategy) {
		of := schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
		to[of] = coreKind{of, creating, changing}
	}
	add("", "PersistentVolumeClaim", persistentvolumeclaim.Strategy, persistentvolumeclaim.Strategy)
	add("", "Namespace", namespace.Strategy, namespace.Strategy)
	add("", "Secret", secret.Strategy, secret.Strategy)
	add("", "ResourceQuota", resourcequota.Strategy, resourcequota.Strategy)
	add("storage.k8s.io", "StorageClass", storageclass.Strategy, storageclass.Strategy)
}

func (c coreKind) decode(object raw) (runtime.Object, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	decoded, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), text)
	if err != nil {
		wrapped := fmt.Errorf("%s in version %q cannot be handled as a %s: %v", c.kind.Kind, c.kind.Version, c.kind.Kind, err)
		return nil, apierrors.NewBadRequest(wrapped.Error())
	}
	return decoded, nil
}

func (c coreKind) encode(object runtime.Object) (raw, error) {
	versioned, err := legacyscheme.Scheme.ConvertToVersion(object, c.kind.GroupVersion())
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(versioned) // as it is when it is read from the store
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
	if err != nil {
		return nil, err
	}
	encoded["apiVersion"], encoded["kind"] = c.kind.GroupVersion().String(), c.kind.Kind
	return encoded, nil
}

func (c coreKind) creation() rest.RESTCreateStrategy { return c.creating }
func (c coreKind) updating() rest.RESTUpdateStrategy { return c.changing }

// No status of these kinds is written here.
func (c coreKind) updatingStatus() rest.RESTUpdateStrategy { return c.changing }
