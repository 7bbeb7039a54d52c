package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/emicklei/go-restful/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/kubevirt/pkg/virt-api/rest"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// virtAPI is who writes what an action asks for.
const virtAPI = "system:serviceaccount:harvester-system:kubevirt-apiserver"

// actions are KubeVirt's handlers of subresources, by kind and name: start of a VirtualMachine. They read the world, and what
// they would write is judged as any write is, and not kept.
type actions map[string]restful.RouteFunction

func newActions(client kubecli.KubevirtClient, cluster *virtconfig.ClusterConfig) actions {
	app := rest.NewSubresourceAPIApp(client, 0, &tls.Config{}, cluster)
	return actions{
		"VirtualMachine/start":                  app.StartVMRequestHandler,
		"VirtualMachine/stop":                   app.StopVMRequestHandler,
		"VirtualMachine/restart":                app.RestartVMRequestHandler,
		"VirtualMachine/migrate":                app.MigrateVMRequestHandler,
		"VirtualMachine/addvolume":              app.VMAddVolumeRequestHandler,
		"VirtualMachine/removevolume":           app.VMRemoveVolumeRequestHandler,
		"VirtualMachineInstance/addvolume":      app.VMIAddVolumeRequestHandler,
		"VirtualMachineInstance/removevolume":   app.VMIRemoveVolumeRequestHandler,
		"VirtualMachineInstance/softreboot":     app.SoftRebootVMIRequestHandler,
		"VirtualMachineInstance/guestosinfo":    app.GuestOSInfo,
		"VirtualMachineInstance/userlist":       app.UserList,
		"VirtualMachineInstance/filesystemlist": app.FilesystemList,
	}
}

// act returns the denial of an action, or none. `asked.Object` are its options.
func (a actions) act(asked question) (raw, []metav1.Status, error) {
	name := text(asked.OldObject, "kind") + "/" + asked.Subresource
	handler, known := a[name]
	if !known {
		return nil, nil, fmt.Errorf("%s is no action here", name)
	}
	var body []byte
	if asked.Object != nil {
		var err error
		if body, err = json.Marshal(asked.Object); err != nil {
			return nil, nil, err
		}
	}
	request := restful.NewRequest(httptest.NewRequest(http.MethodPut, "/", bytes.NewReader(body)))
	request.PathParameters()["name"] = text(asked.OldObject, "metadata", "name")
	request.PathParameters()["namespace"] = text(asked.OldObject, "metadata", "namespace")
	answered := httptest.NewRecorder()
	handler(request, restful.NewResponse(answered))
	if answered.Code < http.StatusBadRequest {
		return nil, nil, nil
	}
	status := metav1.Status{}
	if err := json.Unmarshal(answered.Body.Bytes(), &status); err != nil { // some are plain text
		status = metav1.Status{Message: answered.Body.String()}
	}
	status.Code = int32(answered.Code)
	return nil, []metav1.Status{status}, nil
}

// write judges what a handler or a webhook's program writes: a patch or a creation of a kind that is judged here.
func (a *apiServer) write(
	r *http.Request, kind schema.GroupVersionKind, namespace string, before raw, subresource string, body []byte,
) (raw, *metav1.Status) {
	asked := question{Operation: "CREATE", Subresource: subresource, User: virtAPI, OldObject: before}
	var err error
	if r.Method == http.MethodPatch {
		asked.Operation = "UPDATE"
		var patch jsonpatch.Patch
		var text []byte
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			if text, err = json.Marshal(before); err == nil {
				if body, err = patch.Apply(text); err != nil {
					failed := apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false).ErrStatus
					return nil, &failed
				}
			}
		}
	}
	if err == nil {
		err = decode(body, &asked.Object)
	}
	var stored raw
	var denials []metav1.Status
	if err == nil {
		asked.Object["apiVersion"], asked.Object["kind"] = kind.GroupVersion().String(), kind.Kind
		if metadata, ok := asked.Object["metadata"].(raw); ok && namespace != "" {
			metadata["namespace"] = namespace
		}
		stored, denials, err = a.judge(context.Background(), asked)
	}
	if err != nil {
		failed := statusOf(err)
		return nil, &failed
	}
	if len(denials) > 0 {
		denials[0].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return nil, &denials[0]
	}
	return stored, nil
}
