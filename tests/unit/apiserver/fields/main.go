// Prints the field tables and test vectors that windrow.apiserver.protobuf and windrow.apiserver.types.field_types use, read
// by reflection from the struct tags of k8s.io/api. Run as: go run . tables > src/windrow/apiserver/kubernetes_fields.json
//
//	go run . vectors > tests/unit/apiserver/protobuf_vectors.json
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

var roots = map[string][]any{
	"v1": {corev1.Namespace{}, corev1.Node{}, corev1.Pod{}, corev1.Secret{}, corev1.ConfigMap{}, corev1.Service{},
		corev1.Endpoints{}, corev1.ServiceAccount{}, corev1.Event{}, corev1.PersistentVolumeClaim{},
		corev1.PersistentVolume{}, corev1.ResourceQuota{}, corev1.LimitRange{}, corev1.Binding{}, metav1.DeleteOptions{}},
	"apps/v1":                      {appsv1.Deployment{}, appsv1.DaemonSet{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{},
		appsv1.ControllerRevision{}},
	"batch/v1":                     {batchv1.Job{}},
	"coordination.k8s.io/v1":       {coordv1.Lease{}},
	"discovery.k8s.io/v1":          {discv1.EndpointSlice{}},
	"events.k8s.io/v1":             {eventsv1.Event{}},
	"policy/v1":                    {policyv1.PodDisruptionBudget{}, policyv1.Eviction{}},
	"rbac.authorization.k8s.io/v1": {rbacv1.Role{}, rbacv1.ClusterRole{}, rbacv1.RoleBinding{}, rbacv1.ClusterRoleBinding{}},
	"storage.k8s.io/v1":            {storagev1.StorageClass{}, storagev1.VolumeAttachment{}, storagev1.CSIDriver{}, storagev1.CSINode{}},
	"authentication.k8s.io/v1":     {authnv1.TokenRequest{}, authnv1.TokenReview{}, authnv1.SelfSubjectReview{}},
	"authorization.k8s.io/v1": {authzv1.SelfSubjectAccessReview{}, authzv1.SubjectAccessReview{},
		authzv1.LocalSubjectAccessReview{}, authzv1.SelfSubjectRulesReview{}},
}

var special = map[string]string{"Time": "time", "MicroTime": "microtime", "Quantity": "quantity",
	"IntOrString": "intorstring", "Duration": "duration", "FieldsV1": "json", "RawExtension": "json"}

// Volume kinds of clouds that never meet Harvester, and fields removed long ago.
var left = map[string]bool{"gcePersistentDisk": true, "awsElasticBlockStore": true, "azureDisk": true, "azureFile": true,
	"cephfs": true, "cinder": true, "flocker": true, "glusterfs": true, "photonPersistentDisk": true, "portworxVolume": true,
	"quobyte": true, "rbd": true, "scaleIO": true, "storageos": true, "vsphereVolume": true, "flexVolume": true, "fc": true}

var messages = map[string]map[string][2]string{}

// By message and field: how Go calls the field's type, where that does not follow from its kind.
var goTypes = map[string]map[string]string{}

// usual is what windrow.apiserver.types.field_types takes a kind for.
func usual(kind string) string {
	switch {
	case strings.HasPrefix(kind, "[]"):
		return "[]" + usual(kind[2:])
	case strings.HasPrefix(kind, "{}"):
		return "map[string]" + usual(kind[2:])
	}
	switch kind {
	case "int":
		return "int64"
	case "bytes":
		return "[]uint8"
	case "string", "bool":
		return kind
	}
	_, short, _ := strings.Cut(kind, ".")
	return "v1." + short
}

func addGoType(message, field, kind string, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, ok := special[t.Name()]; ok || field == "" || t.String() == usual(kind) {
		return
	}
	if goTypes[message] == nil {
		goTypes[message] = map[string]string{}
	}
	goTypes[message][field] = t.String()
}

func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	if len(parts) > 2 {
		return parts[len(parts)-2] + "." + t.Name()
	}
	return t.Name()
}

func kindOf(t reflect.Type, tag string) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem(), tag)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + kindOf(t.Elem(), tag)
	case reflect.Map:
		return "{}" + kindOf(t.Elem(), tag)
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Struct:
		if s, ok := special[t.Name()]; ok {
			return s
		}
		walk(t)
		return name(t)
	default:
		return "int"
	}
}

func walk(t reflect.Type) {
	if _, ok := messages[name(t)]; ok {
		return
	}
	fields := map[string][2]string{}
	messages[name(t)] = fields
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := f.Tag.Get("protobuf")
		jsonName := strings.Split(f.Tag.Get("json"), ",")[0]
		if tag == "" {
			continue
		}
		if left[jsonName] {
			addGoType(name(t), jsonName, "", f.Type)
			continue
		}
		kind := kindOf(f.Type, tag)
		addGoType(name(t), jsonName, kind, f.Type)
		// "!" marks a field that is written even where its value is zero: a pointer, or one without omitempty.
		if f.Type.Kind() == reflect.Pointer || !strings.Contains(f.Tag.Get("json"), "omitempty") {
			kind += "!"
		}
		fields[strings.Split(tag, ",")[1]] = [2]string{jsonName, kind}
	}
}

func tables() {
	kinds := map[string]string{}
	for version, list := range roots {
		for _, one := range list {
			t := reflect.TypeOf(one)
			walk(t)
			kinds[version+" "+t.Name()] = name(t)
		}
	}
	var out bytes.Buffer
	line := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	out.WriteString("{\n\"kinds\": {\n")
	writeLines(&out, kinds, line)
	out.WriteString("},\n\"messages\": {\n")
	flat := map[string]map[string]string{}
	for message, fields := range messages {
		flat[message] = map[string]string{}
		for number, field := range fields {
			flat[message][number] = field[0] + " " + field[1]
		}
	}
	writeLines(&out, flat, line)
	out.WriteString("},\n\"go\": {\n")
	writeLines(&out, goTypes, line)
	out.WriteString("}\n}\n")
	os.Stdout.Write(out.Bytes())
}

func writeLines[V any](out *bytes.Buffer, m map[string]V, line func(any) string) {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for i, key := range keys {
		comma := ","
		if i == len(keys)-1 {
			comma = ""
		}
		fmt.Fprintf(out, "%s: %s%s\n", line(key), line(m[key]), comma)
	}
}

func vectors() {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	micro := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC))
	yes, three, uid, fg := true, int32(3), "u-1", metav1.DeletePropagationForeground
	big := int64(3600)
	meta := metav1.ObjectMeta{Name: "n", Namespace: "ns", Labels: map[string]string{"a": "b", "c": ""},
		Annotations: map[string]string{"x/y": "z"}, Finalizers: []string{"f/x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u", Controller: &yes}}}
	_ = uid
	class := "longhorn"
	holder := "me"
	objects := []runtime.Object{
		&corev1.Secret{ObjectMeta: meta, Type: "Opaque", Data: map[string][]byte{"k": []byte("v\x00\xff")}, StringData: map[string]string{"s": "t"}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {1, 2}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "foo"}},
		&corev1.ServiceAccount{ObjectMeta: meta, Secrets: []corev1.ObjectReference{{Name: "s"}}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("10Gi")}}}},
		&corev1.Event{ObjectMeta: meta, Reason: "R", Message: "m", Count: 3, Type: "Normal", FirstTimestamp: now, LastTimestamp: now,
			EventTime: micro, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "x"}, Source: corev1.EventSource{Component: "c"}},
		&coordv1.Lease{ObjectMeta: meta, Spec: coordv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &three, AcquireTime: &micro, RenewTime: &micro}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{ProviderID: "harvester://u", Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}},
				Capacity:   corev1.ResourceList{"cpu": resource.MustParse("4")},
				Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: now}}}},
		&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node", HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i",
			Env:            []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80)}}},
			LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}},
		&authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{Audiences: []string{"a"}, ExpirationSeconds: &big}},
		&authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: "t"}},
		&authnv1.SelfSubjectReview{},
		&authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authzv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"}}},
		&authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{User: "u", Groups: []string{"g"}, Extra: map[string]authzv1.ExtraValue{"e": {"1", "2"}},
			NonResourceAttributes: &authzv1.NonResourceAttributes{Path: "/x", Verb: "get"}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}},
		&discv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4", Endpoints: []discv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discv1.EndpointConditions{Ready: &yes}}}},
		&metav1.DeleteOptions{PropagationPolicy: &fg, GracePeriodSeconds: &big, DryRun: []string{"All"}},
	}
	encoder := protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme)
	type vector struct {
		Kind string          `json:"kind"`
		Body string          `json:"body"`
		JSON json.RawMessage `json:"json"`
	}
	var all []vector
	for _, one := range objects {
		kinds, _, err := clientscheme.Scheme.ObjectKinds(one)
		if err != nil {
			panic(err)
		}
		gvk := kinds[0]
		if _, ok := one.(*metav1.DeleteOptions); ok {
			gvk = schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
		}
		one.GetObjectKind().SetGroupVersionKind(gvk)
		var buffer bytes.Buffer
		if err := encoder.Encode(one, &buffer); err != nil {
			panic(err)
		}
		text, err := json.Marshal(one)
		if err != nil {
			panic(err)
		}
		all = append(all, vector{gvk.Kind, base64.StdEncoding.EncodeToString(buffer.Bytes()), text})
	}
	text, _ := json.MarshalIndent(all, "", " ")
	fmt.Println(string(text))
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "vectors" {
		vectors()
		return
	}
	tables()
}
