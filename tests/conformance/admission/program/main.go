// Judges requests as a Harvester cluster's API server does: the API server's own defaulting, pruning and validation around
// the webhooks of Harvester and KubeVirt, which see the cluster through caches filled from a dump of its objects.
//
// In:  a line {"objects": […], "definitions": […]}, the cluster's objects and CustomResourceDefinitions, then a request per
//
//	line, {"operation": "CREATE", "object": {…}, "oldObject": {…}, "user": "admin"}; of an action, which is an operation of its
//	own, the object are its options: {"operation": "ACTION", "subresource": "start", "oldObject": {…}, "object": {"paused": true}}
//
// Out: a line {} when the caches are full, then a line per request, {"object": {…}} as it would be stored, or
//
//	{"denials": [{"code": 422, "message": …}]}: one of a mutating webhook or the schema, or those of all validating webhooks.
//
// With --types it only prints the types of Harvester and KubeVirt as the emulator has them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtlog "kubevirt.io/client-go/log"
)

type state struct {
	Objects     []raw     `json:"objects"`
	Definitions []raw     `json:"definitions"`
	Folder      string    `json:"folder"`  // of definitions
	Folders     []string  `json:"folders"` // of further ones
	Programs    []program `json:"programs"`
}

type question struct {
	Operation   string   `json:"operation"`
	Subresource string   `json:"subresource"`
	User        string   `json:"user"`
	Groups      []string `json:"groups"`
	Object      raw      `json:"object"`
	OldObject   raw      `json:"oldObject"`
}

type verdict struct {
	Object  raw             `json:"object,omitempty"`
	Denials []metav1.Status `json:"denials,omitempty"`
	Failure string          `json:"failure,omitempty"` // of this program, never of what it judges
}

func judge(api *apiServer, line []byte) (result verdict) {
	defer func() { // webhooks run in net/http, which survives their panics; the API server reports a failed call
		if found := recover(); found != nil {
			result = verdict{Failure: fmt.Sprintf("panic: %v", found)}
		}
	}()
	var asked question
	if err := decode(line, &asked); err != nil {
		return verdict{Failure: err.Error()}
	}
	stored, denials, err := api.judge(context.Background(), asked)
	if err != nil {
		return verdict{Failure: err.Error()}
	}
	if len(denials) > 0 {
		return verdict{Denials: denials}
	}
	return verdict{Object: stored}
}

func main() {
	logrus.SetLevel(logrus.PanicLevel)
	kubevirtlog.Log.SetVerbosityLevel(0)
	if len(os.Args) > 1 && os.Args[1] == "--types" {
		printTypes()
		return
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var given state
	first, err := lines.ReadBytes('\n')
	if err == nil {
		err = decode(first, &given)
	}
	if err != nil {
		log.Fatalf("the dump of the cluster: %v", err)
	}
	ctx, end := context.WithCancel(context.Background()) // of the programs that are started
	defer func() { end(); ended.Wait() }()
	api, err := newAPIServer(ctx, given)
	if err != nil {
		log.Fatal(err)
	}
	_ = out.Encode(struct{}{})
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := out.Encode(judge(api, line)); err != nil {
			return
		}
	}
}
