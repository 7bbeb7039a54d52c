package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
)

// program is another project's webhook program, named by its path: it reads the world as its cluster and is asked over TLS.
type program struct {
	Name  string   `json:"name"`
	Path  string   `json:"path"`
	Group string   `json:"group"`
	Kinds []string `json:"kinds"` // plural names
}

// ended is waited for before this program ends, so that none that it started is left.
var ended sync.WaitGroup

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// start runs the program until ctx ends, and returns its mutating and validating webhooks once it answers.
func (p program) start(ctx context.Context, api string) (mutator, validator webhook, err error) {
	port, err := freePort()
	if err != nil {
		return mutator, validator, err
	}
	folder := os.Getenv("ADMISSION_FOLDER")
	kubeconfig := filepath.Join(folder, p.Name+".yaml")
	content := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: none}}]\n", api)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		return mutator, validator, err
	}
	log, err := os.Create(filepath.Join(folder, p.Name+".log"))
	if err != nil {
		return mutator, validator, err
	}
	running := exec.CommandContext(ctx, p.Path, "--https-port", fmt.Sprint(port), "--namespace", systemNamespace)
	running.Env, running.Stdout, running.Stderr = append(os.Environ(), "KUBECONFIG="+kubeconfig), log, log
	if err := running.Start(); err != nil {
		return mutator, validator, err
	}
	ended.Add(1)
	go func() {
		defer ended.Done()
		_ = running.Wait() // kills it when ctx ends
	}()
	// Its certificate is made by itself for the name of its service.
	trust := &tls.Config{InsecureSkipVerify: true, ServerName: fmt.Sprintf("%s.%s.svc", p.Name, systemNamespace)}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		connection, err := tls.Dial("tcp", address, trust)
		if err == nil {
			connection.Close()
			break
		}
		if time.Now().After(deadline) {
			return mutator, validator, fmt.Errorf("%s does not answer: %w; its log is %s", p.Path, err, log.Name())
		}
	}
	rules := []registrationv1.RuleWithOperations{{
		Operations: []registrationv1.OperationType{registrationv1.OperationAll},
		Rule:       registrationv1.Rule{APIGroups: []string{p.Group}, APIVersions: []string{"*"}, Resources: p.Kinds},
	}}
	made := func(kind, path string, ignores bool) webhook {
		forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: address})
		forward.Transport = &http.Transport{TLSClientConfig: trust}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = path
			forward.ServeHTTP(w, r)
		})
		return webhook{fmt.Sprintf("%s.%s.%s", kind, systemNamespace, p.Name), rules, handler, ignores}
	}
	mutator, validator = made("mutator", "/v1/webhook/mutation", true), made("validator", "/v1/webhook/validation", false)
	return mutator, validator, nil
}
