// Plays the programs that are written with client-go: typed clients (protobuf bodies), informers with and without
// watch-list, leader election, event recording, dynamic server-side apply. Prints one line per check; exits 1 at the
// first that fails. The kubeconfig is the one argument.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

const ns = "default"

func must(what string, err error) {
	if err != nil {
		fmt.Printf("failed: %s: %v\n", what, err)
		os.Exit(1)
	}
	fmt.Println("ok:", what)
}

func within(what string, condition func() bool) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if condition() {
			fmt.Println("ok:", what)
			return
		}
	}
	must(what, fmt.Errorf("not within ten seconds"))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must("kubeconfig", err)
	config.QPS, config.Burst = 200, 200
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client := kubernetes.NewForConfigOrDie(typed)

	secrets(ctx, client)
	informer(ctx, client)
	leader(ctx, client)
	events(ctx, client)
	eviction(ctx, client)
	applies(ctx, client, config)
}

func secrets(ctx context.Context, client *kubernetes.Clientset) {
	api := client.CoreV1().Secrets(ns)
	made, err := api.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"a": "b"}},
		Data: map[string][]byte{"k": {0, 255}}}, metav1.CreateOptions{})
	must("typed create", err)
	_, err = api.Create(ctx, made.DeepCopy(), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		err2 := err
		if err2 == nil {
			err2 = fmt.Errorf("a second create went through")
		}
		must("a second create is refused", err2)
	}
	stale := made.DeepCopy()
	must("update with retry", retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := api.Get(ctx, "s", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Data["k"] = []byte("v")
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
		return err
	}))
	stale.Data["k"] = []byte("old")
	if _, err = api.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		must("a stale update conflicts", fmt.Errorf("got %v", err))
	}
	_, err = api.Patch(ctx, "s", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"c":"d"}}}`), metav1.PatchOptions{})
	must("strategic patch", err)
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "a=b,c=d", FieldSelector: "type=Opaque", Limit: 1})
	must("list", err)
	if len(list.Items) != 1 || string(list.Items[0].Data["k"]) != "v" {
		must("list content", fmt.Errorf("found %v", list.Items))
	}
	wrong := types.UID("other")
	err = api.Delete(ctx, "s", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	if !apierrors.IsConflict(err) {
		must("a delete of another uid conflicts", fmt.Errorf("got %v", err))
	}
	must("delete", api.Delete(ctx, "s", *metav1.NewPreconditionDeleteOptions(string(made.UID))))
	if _, err = api.Get(ctx, "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		must("gone", fmt.Errorf("got %v", err))
	}
}

func informer(ctx context.Context, client *kubernetes.Clientset) {
	for i := 0; i < 3; i++ {
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}}, metav1.CreateOptions{})
		must("config map", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
	maps := factory.Core().V1().ConfigMaps()
	var mutex sync.Mutex
	seen := map[string]int{}
	note := func(what string) { mutex.Lock(); seen[what]++; mutex.Unlock() }
	count := func(what string) int { mutex.Lock(); defer mutex.Unlock(); return seen[what] }
	_, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { note("add") },
		UpdateFunc: func(any, any) { note("update") },
		DeleteFunc: func(any) { note("delete") },
	})
	must("handler", err)
	factory.Start(ctx.Done())
	within("informer synced", func() bool { return maps.Informer().HasSynced() })
	within("informer saw what was there", func() bool { return count("add") >= 3 })
	_, err = client.CoreV1().ConfigMaps(ns).Patch(ctx, "m0", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	must("patch", err)
	must("delete", client.CoreV1().ConfigMaps(ns).Delete(ctx, "m1", metav1.DeleteOptions{}))
	within("informer saw the change", func() bool { return count("update") >= 1 })
	within("informer saw the deletion", func() bool { return count("delete") == 1 })
	found, err := maps.Lister().ConfigMaps(ns).Get("m0")
	must("lister", err)
	if found.Data["a"] != "b" {
		must("lister content", fmt.Errorf("found %v", found.Data))
	}
}

func leader(ctx context.Context, client *kubernetes.Clientset) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	led := make(chan struct{})
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: "lead", Namespace: ns}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}}
	done := make(chan struct{})
	go func() {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, LeaseDuration: 4 * time.Second,
			RenewDeadline: 3 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(led) }, OnStoppedLeading: func() {}}})
		close(done)
	}()
	<-led
	time.Sleep(600 * time.Millisecond)
	lease, err := client.CoordinationV1().Leases(ns).Get(ctx, "lead", metav1.GetOptions{})
	must("lease", err)
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "me" || !lease.Spec.RenewTime.After(lease.Spec.AcquireTime.Time) {
		must("lease is renewed", fmt.Errorf("found %v", lease.Spec))
	}
	stop()
	<-done
	fmt.Println("ok: leader election")
}

func events(ctx context.Context, client *kubernetes.Clientset) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	about := &corev1.ObjectReference{Kind: "ConfigMap", Namespace: ns, Name: "m0", UID: "u", APIVersion: "v1"}
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "clientgo"})
	recorder.Event(about, corev1.EventTypeNormal, "Told", "a story")
	recorder.Event(about, corev1.EventTypeNormal, "Told", "a story")
	within("an event is recorded and counted", func() bool {
		list, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=m0,reason=Told"})
		return err == nil && len(list.Items) == 1 && list.Items[0].Count == 2
	})
}

func eviction(ctx context.Context, client *kubernetes.Clientset) {
	pods := client.CoreV1().Pods(ns)
	_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	must("pod", err)
	must("eviction", client.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: ns}}))
	within("evicted", func() bool {
		_, err := pods.Get(ctx, "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func applies(ctx context.Context, client *kubernetes.Clientset, config *rest.Config) {
	api := client.CoreV1().ConfigMaps(ns)
	_, err := api.Apply(ctx, corev1apply.ConfigMap("a", ns).WithData(map[string]string{"x": "1", "y": "1"}), metav1.ApplyOptions{FieldManager: "one"})
	must("typed apply", err)
	_, err = api.Apply(ctx, corev1apply.ConfigMap("a", ns).WithData(map[string]string{"x": "2"}), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		must("an apply over another's field conflicts", fmt.Errorf("got %v", err))
	}
	resource := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets"}).Namespace(ns)
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.io/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": int64(3)}}}
	made, err := resource.Apply(ctx, "w", widget, metav1.ApplyOptions{FieldManager: "one"})
	must("dynamic apply", err)
	if color, _, _ := unstructured.NestedString(made.Object, "spec", "color"); color != "red" {
		must("defaults", fmt.Errorf("found %v", made.Object))
	}
	must("delete a collection", resource.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}
