// The WebApp operator in Go, on controller-runtime: what `make bench-quick` measures the host against.
package main

import (
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	webappv1 "example.com/webapp-operator/api/v1"
	"example.com/webapp-operator/internal/controller"
)

func main() {
	workers := flag.Int("workers", 4, "objects worked on at the same time")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	log := ctrl.Log.WithName("setup")

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(webappv1.AddToScheme(scheme))

	// The client is not limited: controller-runtime leaves that to the server's priority and fairness.
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme: scheme,
		// Nothing here reads managedFields, which are half of what an object weighs.
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		log.Error(err, "no manager")
		os.Exit(1)
	}
	reconciler := &controller.WebAppReconciler{Client: mgr.GetClient(), Scheme: scheme}
	if err := reconciler.SetupWithManager(mgr, *workers); err != nil {
		log.Error(err, "no controller")
		os.Exit(1)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Error(err, "ended")
		os.Exit(1)
	}
}
