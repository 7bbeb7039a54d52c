package main

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/authentication/user"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	quota "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageobjectinuseprotection"
)

// plugins are the API server's own admission plugins for the kinds that are judged here, by where they stand to webhooks.
type plugins struct{ before, after []admission.Interface }

func startPlugins(connection *rest.Config) (plugins, error) {
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return plugins{}, err
	}
	forever := make(chan struct{})
	known := admission.NewPlugins()
	lifecycle.Register(known)
	setdefault.Register(known)
	storageobjectinuseprotection.Register(known)
	resize.Register(known)
	resourcequota.Register(known)
	factory := informers.NewSharedInformerFactory(client, 10*time.Hour)
	common := initializer.New(client, nil, factory, nil, utilfeature.DefaultFeatureGate, forever, nil)
	var made plugins
	for _, one := range []struct {
		name string
		list *[]admission.Interface
	}{
		{lifecycle.PluginName, &made.before},
		{setdefault.PluginName, &made.before},
		{storageobjectinuseprotection.PluginName, &made.before},
		{resize.PluginName, &made.after},
		{resourcequota.PluginName, &made.after},
	} {
		plugin, err := known.InitPlugin(one.name, nil, admission.PluginInitializers{common, quotas{}})
		if err != nil {
			return plugins{}, fmt.Errorf("%s: %w", one.name, err)
		}
		*one.list = append(*one.list, plugin)
	}
	factory.Start(forever)
	factory.WaitForCacheSync(forever)
	return made, nil
}

// quotas tells the plugin of quotas what counts.
type quotas struct{}

func (quotas) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(quota.NewQuotaConfigurationForAdmission())
	}
}

func attributesOf(r *admissionv1.AdmissionRequest, object, before runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(
		object, before, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name, schema.GroupVersionResource(r.Resource),
		r.SubResource, admission.Operation(r.Operation), nil, true,
		&user.DefaultInfo{Name: r.UserInfo.Username, Groups: r.UserInfo.Groups},
	)
}

func (p plugins) admit(ctx context.Context, attributes admission.Attributes) error {
	for _, one := range p.before {
		plugin, ok := one.(admission.MutationInterface)
		if ok && plugin.Handles(attributes.GetOperation()) {
			if err := plugin.Admit(ctx, attributes, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p plugins) validate(ctx context.Context, attributes admission.Attributes) error {
	for _, one := range p.after {
		plugin, ok := one.(admission.ValidationInterface)
		if ok && plugin.Handles(attributes.GetOperation()) {
			if err := plugin.Validate(ctx, attributes, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
