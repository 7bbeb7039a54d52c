package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"

	"github.com/harvester/harvester/pkg/webhook/clients"
	"github.com/harvester/harvester/pkg/webhook/config"
	"github.com/harvester/harvester/pkg/webhook/indexeres"
	"github.com/harvester/harvester/pkg/webhook/server"
	"github.com/harvester/harvester/pkg/webhook/types"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/kubevirt/pkg/controller"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	kubevirtwebhooks "kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	mutating "kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook"
	validating "kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

const systemNamespace = "harvester-system"

// webhook is one entry of a webhook configuration with the handler that its service would reach.
type webhook struct {
	name    string
	rules   []registrationv1.RuleWithOperations
	handler http.Handler
	ignores bool // its failure policy: without an answer the request goes on
}

func (w webhook) matches(r *admissionv1.AdmissionRequest) bool {
	resource := r.Resource.Resource
	if r.SubResource != "" {
		resource += "/" + r.SubResource
	}
	for _, rule := range w.rules {
		operation := registrationv1.OperationType(r.Operation)
		if (slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, registrationv1.OperationAll)) &&
			(slices.Contains(rule.APIGroups, r.Resource.Group) || slices.Contains(rule.APIGroups, "*")) &&
			(slices.Contains(rule.APIVersions, r.Resource.Version) || slices.Contains(rule.APIVersions, "*")) &&
			(slices.Contains(rule.Resources, resource) || slices.Contains(rule.Resources, "*")) {
			return true
		}
	}
	return false
}

// call returns the answer; nil where there is none and the policy is to go on. A panic is no answer: net/http closes the
// connection, and the webhook's process lives on.
func (w webhook) call(r *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	defer func() {
		if found := recover(); found != nil {
			response, err = nil, nil
			if !w.ignores {
				err = apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: EOF", w.name))
			}
		}
	}()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: r,
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answered := httptest.NewRecorder()
	w.handler.ServeHTTP(answered, request)
	var reply admissionv1.AdmissionReview
	if err := json.Unmarshal(answered.Body.Bytes(), &reply); err != nil {
		return nil, fmt.Errorf("%s answered %d %q: %w", w.name, answered.Code, answered.Body, err)
	}
	if reply.Response == nil {
		return nil, fmt.Errorf("%s answered %d without a response", w.name, answered.Code)
	}
	return reply.Response, nil
}

// webhooks are what a Harvester cluster has, in the order in which an API server calls them.
type webhooks struct{ mutating, validating []webhook }

func rulesOf(resources []types.Resource) []registrationv1.RuleWithOperations {
	var rules []registrationv1.RuleWithOperations
	for _, one := range resources {
		rules = append(rules, registrationv1.RuleWithOperations{
			Operations: one.OperationTypes,
			Rule: registrationv1.Rule{
				APIGroups: []string{one.APIGroup}, APIVersions: []string{one.APIVersion}, Resources: one.Names,
			},
		})
	}
	return rules
}

func harvesterWebhooks(ctx context.Context, api *rest.Config) (mutator, validator webhook, err error) {
	made, err := clients.New(ctx, api, 1, false)
	if err != nil {
		return mutator, validator, err
	}
	indexeres.RegisterIndexers(made)
	options := &config.Options{
		Namespace: systemNamespace, Threadiness: 1,
		HarvesterControllerUsername: "system:serviceaccount:harvester-system:harvester",
		GarbageCollectionUsername:   "system:serviceaccount:kube-system:generic-garbage-collector",
	}
	validation, validated, err := server.Validation(made, options, false)
	if err != nil {
		return mutator, validator, err
	}
	mutation, mutated, err := server.Mutation(made, options, false)
	if err != nil {
		return mutator, validator, err
	}
	if err := made.SharedControllerFactory.Start(ctx, 1); err != nil {
		return mutator, validator, err
	}
	made.SharedControllerFactory.SharedCacheFactory().WaitForCacheSync(ctx)
	mutator = webhook{"mutator.harvesterhci.io", rulesOf(mutated), mutation, true}
	validator = webhook{"validator.harvesterhci.io", rulesOf(validated), validation, false}
	return mutator, validator, nil
}

func kubevirtWebhooks(ctx context.Context, api *rest.Config) (webhooks, actions, error) {
	client, err := kubecli.GetKubevirtClientFromRESTConfig(api)
	if err != nil {
		return webhooks{}, nil, err
	}
	aggregator, err := aggregatorclient.NewForConfig(api)
	if err != nil {
		return webhooks{}, nil, err
	}
	factory := controller.NewKubeInformerFactory(client.RestClient(), client, aggregator, systemNamespace)
	definitions, kubevirts := factory.CRD(), factory.KubeVirt()
	informers := &kubevirtwebhooks.Informers{
		VMIPresetInformer: factory.VirtualMachinePreset(), VMRestoreInformer: factory.VirtualMachineRestore(),
		NamespaceInformer: factory.Namespace(), DataSourceInformer: factory.DummyDataSource(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	cluster, err := virtconfig.NewClusterConfig(definitions, kubevirts, systemNamespace)
	if err != nil {
		return webhooks{}, nil, err
	}
	accounts := kubevirtwebhooks.KubeVirtServiceAccounts(systemNamespace)
	networks := func(at *field.Path, spec *kubevirtv1.VirtualMachineInstanceSpec, has *virtconfig.ClusterConfig) []metav1.StatusCause {
		return netadmitter.Validate(at, spec, has)
	}
	handlers := map[string]http.HandlerFunc{
		components.VMMutatePath: func(w http.ResponseWriter, r *http.Request) { mutating.ServeVMs(w, r, cluster, client) },
		components.VMIMutatePath: func(w http.ResponseWriter, r *http.Request) {
			mutating.ServeVMIs(w, r, cluster, informers, accounts)
		},
		components.MigrationMutatePath: func(w http.ResponseWriter, r *http.Request) { mutating.ServeMigrationCreate(w, r) },
		components.VMICreateValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeVMICreate(w, r, cluster, accounts, networks)
		},
		components.VMIUpdateValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeVMIUpdate(w, r, cluster, accounts)
		},
		components.VMValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeVMs(w, r, cluster, client, informers, accounts)
		},
		components.StatusValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeStatusValidation(w, r, cluster, client, informers, accounts)
		},
		components.MigrationCreateValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeMigrationCreate(w, r, cluster, client, accounts)
		},
		components.MigrationUpdateValidatePath: func(w http.ResponseWriter, r *http.Request) {
			validating.ServeMigrationUpdate(w, r)
		},
	}
	var found webhooks
	for _, one := range components.NewVirtAPIMutatingWebhookConfiguration(systemNamespace).Webhooks {
		if handler, ok := handlers[*one.ClientConfig.Service.Path]; ok {
			found.mutating = append(found.mutating, webhook{one.Name, one.Rules, handler, false})
		}
	}
	for _, one := range components.NewVirtAPIValidatingWebhookConfiguration(systemNamespace).Webhooks {
		if handler, ok := handlers[*one.ClientConfig.Service.Path]; ok {
			found.validating = append(found.validating, webhook{one.Name, one.Rules, handler, false})
		}
	}
	return found, newActions(client, cluster), nil
}

// connect serves the world on a loopback address, for as long as the program lives.
func connect(w *world) (*rest.Config, error) {
	api := httptest.NewServer(w)
	// Harvester reads both files at start; nothing is asked for them here.
	token, err := os.CreateTemp(os.Getenv("ADMISSION_FOLDER"), "token")
	if err != nil {
		return nil, err
	}
	defer token.Close()
	if _, err := token.WriteString("none"); err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: api.URL, QPS: -1, BearerTokenFile: token.Name(), TLSClientConfig: rest.TLSClientConfig{CAFile: "/dev/null"},
	}, nil
}

// startWebhooks fills the caches from the world and returns when they are full.
func startWebhooks(ctx context.Context, connection *rest.Config, programs []program) (webhooks, actions, error) {
	mutator, validator, err := harvesterWebhooks(ctx, connection)
	if err != nil {
		return webhooks{}, nil, fmt.Errorf("webhooks of Harvester: %w", err)
	}
	all, handlers, err := kubevirtWebhooks(ctx, connection)
	if err != nil {
		return webhooks{}, nil, fmt.Errorf("webhooks of KubeVirt: %w", err)
	}
	// Configurations in the order of their names: harvester-load-balancer-webhook, harvester-mutator, virt-api-mutator.
	all.mutating = append([]webhook{mutator}, all.mutating...)
	all.validating = append([]webhook{validator}, all.validating...)
	for _, one := range programs {
		mutator, validator, err := one.start(ctx, connection.Host)
		if err != nil {
			return webhooks{}, nil, err
		}
		all.mutating = append([]webhook{mutator}, all.mutating...)
		all.validating = append([]webhook{validator}, all.validating...)
	}
	return all, handlers, nil
}
