package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// strategy is what the API server does with the objects of a kind besides calling webhooks.
type strategy interface {
	decode(object raw) (runtime.Object, error)
	encode(object runtime.Object) (raw, error)
	creation() rest.RESTCreateStrategy
	updating() rest.RESTUpdateStrategy
	updatingStatus() rest.RESTUpdateStrategy
}

// apiServer judges requests in the order of an API server: defaults, mutating webhooks, validation, validating webhooks.
type apiServer struct {
	webhooks   webhooks
	strategies map[schema.GroupVersionKind]strategy
	plugins    plugins
	actions    actions
}

func decode(text []byte, into any) error {
	if err := utiljson.Unmarshal(text, into); err != nil {
		return err
	}
	return nil
}

func newAPIServer(ctx context.Context, given state) (*apiServer, error) {
	definitions, err := kubevirtDefinitions()
	if err != nil {
		return nil, err
	}
	for _, folder := range append([]string{given.Folder}, given.Folders...) {
		inFolder, err := readFolder(folder)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, inFolder...)
	}
	strategies := map[schema.GroupVersionKind]strategy{}
	addCoreKinds(strategies)
	for _, one := range given.Definitions {
		definition, err := readDefinition(one)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, definition)
	}
	for _, definition := range definitions {
		if err := addCustomKinds(strategies, definition); err != nil {
			return nil, fmt.Errorf("%s: %w", definition.Name, err)
		}
	}
	cluster := newWorld(given.Objects)
	connection, err := connect(cluster)
	if err != nil {
		return nil, err
	}
	own, err := startPlugins(connection)
	if err != nil {
		return nil, err
	}
	found, handlers, err := startWebhooks(ctx, connection, given.Programs)
	if err != nil {
		return nil, err
	}
	made := &apiServer{found, strategies, own, handlers}
	cluster.write = made.write
	return made, nil
}

func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return known.Status()
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// judge returns the object that would be stored, or the denials; an error is a fault of the question.
func (a *apiServer) judge(ctx context.Context, asked question) (raw, []metav1.Status, error) {
	if asked.Operation == "ACTION" {
		return a.actions.act(asked)
	}
	subject := asked.Object
	if subject == nil {
		subject = asked.OldObject
	}
	kind := schema.FromAPIVersionAndKind(text(subject, "apiVersion"), text(subject, "kind"))
	handled, known := a.strategies[kind]
	if !known {
		return nil, nil, fmt.Errorf("%s is not served here", kind)
	}
	namespace := text(subject, "metadata", "namespace")
	ctx = genericapirequest.WithNamespace(ctx, namespace)
	request := requestOf(asked, kind, namespace)
	var before, object runtime.Object
	var err error
	if asked.OldObject != nil {
		if before, err = handled.decode(asked.OldObject); err != nil {
			return nil, nil, err
		}
	}
	if asked.Operation != "DELETE" {
		if object, err = handled.decode(asked.Object); err != nil {
			return nil, []metav1.Status{statusOf(err)}, nil
		}
	}
	if err := a.plugins.admit(ctx, attributesOf(request, object, before)); err != nil {
		return nil, []metav1.Status{statusOf(err)}, nil
	}
	if object, err = a.mutate(request, handled, object, before); err != nil {
		return nil, []metav1.Status{statusOf(err)}, nil
	}
	var failed error
	switch asked.Operation {
	case "CREATE":
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, nil, err
		}
		rest.FillObjectMetaSystemFields(accessor)
		if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
			accessor.SetName(accessor.GetGenerateName() + "x7k2p")
		}
		failed = rest.BeforeCreate(handled.creation(), ctx, object)
	case "UPDATE":
		changing := handled.updating()
		if asked.Subresource == "status" {
			changing = handled.updatingStatus()
		}
		failed = rest.BeforeUpdate(changing, ctx, object, before.DeepCopyObject())
	}
	if failed != nil {
		return nil, []metav1.Status{statusOf(failed)}, nil
	}
	byPlugins := a.plugins.validate(ctx, attributesOf(request, object, before))
	denials, err := a.validate(request, handled, object, before)
	if err == nil && len(denials) == 0 && byPlugins != nil {
		denials = append(denials, statusOf(byPlugins))
	}
	if err != nil || len(denials) > 0 || object == nil {
		return nil, denials, err
	}
	stored, err := handled.encode(object)
	return stored, nil, err
}

func requestOf(asked question, kind schema.GroupVersionKind, namespace string) *admissionv1.AdmissionRequest {
	subject := asked.Object
	if subject == nil {
		subject = asked.OldObject
	}
	plain := metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: pluralOf(kind.Kind)}
	dryRun := true
	return &admissionv1.AdmissionRequest{
		UID: "1", Kind: plain, Resource: resource, SubResource: asked.Subresource,
		RequestKind: &plain, RequestResource: &resource, RequestSubResource: asked.Subresource,
		Name: text(subject, "metadata", "name"), Namespace: namespace, Operation: admissionv1.Operation(asked.Operation),
		UserInfo: authenticationv1.UserInfo{Username: asked.User, Groups: asked.Groups}, DryRun: &dryRun,
	}
}

func rawOf(handled strategy, object runtime.Object) (runtime.RawExtension, error) {
	if object == nil {
		return runtime.RawExtension{}, nil
	}
	encoded, err := handled.encode(object)
	if err != nil {
		return runtime.RawExtension{}, err
	}
	body, err := json.Marshal(encoded)
	return runtime.RawExtension{Raw: body}, err
}

func fill(r *admissionv1.AdmissionRequest, handled strategy, object, before runtime.Object) (err error) {
	if r.Object, err = rawOf(handled, object); err != nil {
		return err
	}
	r.OldObject, err = rawOf(handled, before)
	return err
}

// mutate calls the mutating webhooks one after the other, each on what the one before it left.
func (a *apiServer) mutate(
	r *admissionv1.AdmissionRequest, handled strategy, object, before runtime.Object,
) (runtime.Object, error) {
	for _, hook := range a.webhooks.mutating {
		if !hook.matches(r) {
			continue
		}
		if err := fill(r, handled, object, before); err != nil {
			return nil, err
		}
		answer, err := hook.call(r)
		if err != nil {
			return nil, err
		}
		if answer == nil {
			continue
		}
		if !answer.Allowed {
			return nil, webhookerrors.ToStatusErr(hook.name, answer.Result)
		}
		if len(answer.Patch) == 0 {
			continue
		}
		patch, err := jsonpatch.DecodePatch(answer.Patch)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if len(patch) == 0 {
			continue
		}
		changed, err := patch.Apply(r.Object.Raw)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		var next raw
		if err := decode(changed, &next); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if object, err = handled.decode(next); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return object, nil
}

// validate returns the denials of all validating webhooks; the API server calls them at once and reports any of them.
func (a *apiServer) validate(
	r *admissionv1.AdmissionRequest, handled strategy, object, before runtime.Object,
) ([]metav1.Status, error) {
	if err := fill(r, handled, object, before); err != nil {
		return nil, err
	}
	var denials []metav1.Status
	for _, hook := range a.webhooks.validating {
		if !hook.matches(r) {
			continue
		}
		answer, err := hook.call(r)
		if err != nil {
			denials = append(denials, statusOf(err))
			continue
		}
		if !answer.Allowed {
			denials = append(denials, webhookerrors.ToStatusErr(hook.name, answer.Result).ErrStatus)
		}
	}
	return denials, nil
}
