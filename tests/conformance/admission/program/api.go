package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"sort"
	"strings"
	"sync"

	"github.com/harvester/harvester/pkg/settings"
	"github.com/rancher/wrangler/v3/pkg/schemes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtscheme "kubevirt.io/client-go/kubevirt/scheme"
)

type raw = map[string]any

// world is the state of a cluster, served as an API: discovery, get, list, and watches. The informers of the webhooks are filled
// from it as they are from an API server. Nothing in it changes but the Secrets that a webhook's program keeps its certificates
// in: what handlers of actions write is judged, answered and forgotten.
type world struct {
	mu       sync.RWMutex
	objects  map[schema.GroupResource][]raw
	watchers map[schema.GroupResource][]chan raw
	versions int
	write    func(r *http.Request, kind schema.GroupVersionKind, namespace string, before raw, subresource string, body []byte) (raw, *metav1.Status)
}

// Kinds that only programs of other projects know.
var foreign = map[string]string{
	"loadbalancers": "LoadBalancer", "ippools": "IPPool", "vlanconfigs": "VlanConfig", "vlanstatuses": "VlanStatus",
	"clusternetworks": "ClusterNetwork", "hostnetworkconfigs": "HostNetworkConfig", "linkmonitors": "LinkMonitor",
}

var irregular = map[string]string{
	"Endpoints":                   "endpoints",
	"NetworkAttachmentDefinition": "network-attachment-definitions",
}

// Kinds without a namespace; every other one has one.
var clusterScoped = map[string]bool{
	"Node": true, "Namespace": true, "StorageClass": true, "Setting": true, "PersistentVolume": true,
	"ClusterNetwork": true, "IPPool": true, "HostNetworkConfig": true, "VlanConfig": true, "VlanStatus": true, "VolumeSnapshotClass": true, "Feature": true,
	"CustomResourceDefinition": true, "Version": false, "StorageProfile": true,
}

func pluralOf(kind string) string {
	if name, ok := irregular[kind]; ok {
		return name
	}
	lower := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(lower, "s"):
		return lower + "es"
	case strings.HasSuffix(lower, "y"):
		return strings.TrimSuffix(lower, "y") + "ies"
	}
	return lower + "s"
}

func newWorld(objects []raw) *world {
	made := &world{objects: map[schema.GroupResource][]raw{}, watchers: map[schema.GroupResource][]chan raw{}}
	for _, object := range objects {
		made.add(object)
	}
	made.complete()
	return made
}

// complete adds what every Harvester has: the settings of its release that the dump has none of, snapshot classes.
func (w *world) complete() {
	_ = settings.SetProvider(defaults{w})
	for name, driver := range map[string]string{
		"longhorn-snapshot": "driver.longhorn.io", "lvm-snapshot": "lvm.driver.harvesterhci.io",
	} {
		w.add(raw{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": raw{"name": name},
			"driver": driver, "deletionPolicy": "Delete",
		})
	}
}

func (w *world) add(object raw) {
	kind := schema.FromAPIVersionAndKind(text(object, "apiVersion"), text(object, "kind"))
	key := schema.GroupResource{Group: kind.Group, Resource: pluralOf(kind.Kind)}
	w.objects[key] = append(w.objects[key], object)
}

// defaults is given all settings of the release.
type defaults struct{ world *world }

func (d defaults) Get(string) string               { return "" }
func (d defaults) Set(string, string) error        { return nil }
func (d defaults) SetIfUnset(string, string) error { return nil }
func (d defaults) SetAll(all map[string]settings.Setting) error {
	for name, one := range all {
		if d.world.find("harvesterhci.io", "settings", "", name) == nil {
			d.world.add(raw{
				"apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": raw{"name": name}, "default": one.Default,
			})
		}
	}
	return nil
}

func text(object raw, path ...string) string {
	var found any = object
	for _, key := range path {
		inner, _ := found.(raw)
		found = inner[key]
	}
	value, _ := found.(string)
	return value
}

func (w *world) find(group, resource, namespace, name string) raw {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, object := range w.objects[schema.GroupResource{Group: group, Resource: resource}] {
		if text(object, "metadata", "name") == name && text(object, "metadata", "namespace") == namespace {
			return object
		}
	}
	return nil
}

func (w *world) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "accessreviews") {
		w.review(out, request)
		return
	}
	switch {
	case parts[0] == "version":
		answer(out, raw{"major": "1", "minor": "33", "gitVersion": "v1.33.7"})
	case len(parts) == 1 && parts[0] == "api":
		answer(out, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case len(parts) == 1 && parts[0] == "apis":
		answer(out, groups())
	case parts[0] == "api" && len(parts) == 2:
		answer(out, resources(schema.GroupVersion{Version: parts[1]}))
	case parts[0] == "apis" && len(parts) == 3:
		answer(out, resources(schema.GroupVersion{Group: parts[1], Version: parts[2]}))
	case parts[0] == "api":
		w.read(out, request, schema.GroupVersion{Version: parts[1]}, parts[2:])
	case parts[0] == "apis" && len(parts) > 3:
		w.read(out, request, schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:])
	default:
		http.NotFound(out, request)
	}
}

func (w *world) read(out http.ResponseWriter, request *http.Request, version schema.GroupVersion, path []string) {
	namespace := ""
	if path[0] == "namespaces" && len(path) > 2 {
		namespace, path = path[1], path[2:]
	}
	resource := path[0]
	of := schema.GroupResource{Group: version.Group, Resource: resource}
	if request.Method != http.MethodGet {
		w.change(out, request, version.WithKind(kindOf(version, resource)), of, namespace, path[1:])
		return
	}
	if request.URL.Query().Get("watch") != "" {
		out.Header().Set("Content-Type", "application/json")
		out.(http.Flusher).Flush()
		events := make(chan raw, 100)
		w.mu.Lock()
		w.watchers[of] = append(w.watchers[of], events)
		w.mu.Unlock()
		for {
			select {
			case <-request.Context().Done():
				return
			case event := <-events:
				_ = json.NewEncoder(out).Encode(event)
				out.(http.Flusher).Flush()
			}
		}
	}
	if len(path) > 1 {
		if found := w.find(version.Group, resource, namespace, path[1]); found != nil {
			answer(out, found)
			return
		}
		refuse(out, metav1.Status{
			Message: fmt.Sprintf("%s %q not found", of, path[1]), Reason: metav1.StatusReasonNotFound,
			Code: http.StatusNotFound, Details: &metav1.StatusDetails{Name: path[1], Group: version.Group, Kind: resource},
		})
		return
	}
	items, kind := []raw{}, kindOf(version, resource)
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, object := range w.objects[of] {
		if namespace == "" || text(object, "metadata", "namespace") == namespace {
			items = append(items, object)
		}
	}
	answer(out, raw{
		"apiVersion": version.String(), "kind": kind + "List", "metadata": raw{"resourceVersion": "1"}, "items": items,
	})
}

func refuse(out http.ResponseWriter, status metav1.Status) {
	status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(int(status.Code))
	_ = json.NewEncoder(out).Encode(status)
}

// change answers a write. Of Secrets it is kept, so that a program finds its certificates again.
func (w *world) change(
	out http.ResponseWriter, request *http.Request, kind schema.GroupVersionKind, of schema.GroupResource, namespace string, path []string,
) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	var before raw
	subresource := ""
	if len(path) > 0 {
		before = w.find(of.Group, of.Resource, namespace, path[0])
	}
	if len(path) > 1 {
		subresource = path[1]
	}
	if of.Resource == "secrets" {
		var given raw
		if err := decode(body, &given); err != nil {
			refuse(out, metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()})
			return
		}
		answer(out, w.keep(given, of, namespace))
		return
	}
	if w.write == nil || (request.Method == http.MethodPatch && before == nil) {
		refuse(out, metav1.Status{Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: "not written here"})
		return
	}
	stored, refused := w.write(request, kind, namespace, before, subresource, body)
	if refused != nil {
		refuse(out, *refused)
		return
	}
	answer(out, stored)
}

func (w *world) keep(object raw, of schema.GroupResource, namespace string) raw {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.versions++
	metadata, _ := object["metadata"].(raw)
	metadata["namespace"], metadata["uid"] = namespace, text(object, "metadata", "name")
	metadata["resourceVersion"] = fmt.Sprint(1000 + w.versions)
	object["apiVersion"], object["kind"] = "v1", "Secret"
	kind := "ADDED"
	for place, one := range w.objects[of] {
		if text(one, "metadata", "name") == text(object, "metadata", "name") && text(one, "metadata", "namespace") == namespace {
			w.objects[of] = append(w.objects[of][:place:place], w.objects[of][place+1:]...)
			kind = "MODIFIED"
			break
		}
	}
	w.objects[of] = append(w.objects[of], object)
	for _, watcher := range w.watchers[of] {
		select {
		case watcher <- raw{"type": kind, "object": object}:
		default: // its connection is gone
		}
	}
	return object
}

// review grants every access: who may do what is no question of admission.
func (w *world) review(out http.ResponseWriter, request *http.Request) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(out).Encode(raw{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": raw{"allowed": true},
	})
}

func answer(out http.ResponseWriter, object any) {
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(object)
}

// served returns the kinds of a version that the webhooks know; discovery offers them all.
func served(version schema.GroupVersion) []string {
	var kinds []string
	known := map[string]reflect.Type{}
	for _, one := range []*runtime.Scheme{schemes.All, kubevirtscheme.Scheme} {
		maps.Copy(known, one.KnownTypes(version))
	}
	for kind := range known {
		base := strings.TrimSuffix(kind, "List")
		_, isList := known[base]
		_, listed := known[kind+"List"]
		if (base == kind || !isList) && listed {
			kinds = append(kinds, kind)
		}
	}
	sort.Strings(kinds)
	return kinds
}

func kindOf(version schema.GroupVersion, resource string) string {
	for _, kind := range served(version) {
		if pluralOf(kind) == resource {
			return kind
		}
	}
	if kind, known := foreign[resource]; known {
		return kind
	}
	return strings.TrimSuffix(resource, "s")
}

func groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, version := range schemes.All.PrioritizedVersionsAllGroups() {
		if version.Group == "" || version.Version == "__internal" {
			continue
		}
		offered := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
		if last := len(list.Groups) - 1; last >= 0 && list.Groups[last].Name == version.Group {
			list.Groups[last].Versions = append(list.Groups[last].Versions, offered)
			continue
		}
		list.Groups = append(list.Groups, metav1.APIGroup{
			Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{offered}, PreferredVersion: offered,
		})
	}
	return list
}

func resources(version schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.String(),
	}
	for _, kind := range served(version) {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: pluralOf(kind), SingularName: strings.ToLower(kind), Kind: kind, Namespaced: !clusterScoped[kind],
			Verbs: metav1.Verbs{"get", "list", "watch"},
		})
	}
	return list
}
