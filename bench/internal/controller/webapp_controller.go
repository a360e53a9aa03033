// Package controller holds the reconciler of WebApps.
package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	webappv1 "example.com/webapp-operator/api/v1"
)

// WebAppReconciler makes a Deployment and a Service of every WebApp, and reports what is ready.
type WebAppReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// SetupWithManager registers the controller with that many workers.
func (r *WebAppReconciler) SetupWithManager(mgr ctrl.Manager, workers int) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&webappv1.WebApp{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile brings one WebApp to what its spec says. All reads come from the cache.
func (r *WebAppReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var app webappv1.WebApp
	if err := r.Get(ctx, req.NamespacedName, &app); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The garbage collector removes the children of one that goes.
	if !app.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if problems := validation.IsDNS1035Label(app.Name); len(problems) > 0 {
		err := fmt.Errorf("metadata.name: %q can't name a Service: %s", app.Name, problems[0])
		ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "InvalidName", Message: err.Error()}
		if err := r.writeStatus(ctx, &app, 0, ready); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, reconcile.TerminalError(err)
	}

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		return r.mutateDeployment(&app, deployment)
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("deployment: %w", err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		return r.mutateService(&app, service)
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("service: %w", err)
	}

	readyReplicas := deployment.Status.ReadyReplicas
	ready := metav1.Condition{
		Type:    "Ready",
		Status:  metav1.ConditionFalse,
		Reason:  "ReplicasNotReady",
		Message: fmt.Sprintf("%d/%d replicas ready", readyReplicas, app.Spec.Replicas),
	}
	if isRolledOut(deployment, app.Spec.Replicas) {
		ready.Status, ready.Reason = metav1.ConditionTrue, "ReplicasReady"
	}
	return ctrl.Result{}, r.writeStatus(ctx, &app, readyReplicas, ready)
}

// mutateDeployment sets what we want and leaves alone what the server and others filled in.
func (r *WebAppReconciler) mutateDeployment(app *webappv1.WebApp, deployment *appsv1.Deployment) error {
	labels := map[string]string{"app": app.Name}
	setLabels(&deployment.ObjectMeta, labels)
	if deployment.CreationTimestamp.IsZero() {
		// Immutable once it is made.
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	}
	deployment.Spec.Replicas = &app.Spec.Replicas
	template := &deployment.Spec.Template
	setLabels(&template.ObjectMeta, labels)

	web := container(&template.Spec, "web")
	web.Image = app.Spec.Image
	if len(web.Ports) != 1 {
		web.Ports = make([]corev1.ContainerPort, 1)
	}
	web.Ports[0].ContainerPort = app.Spec.Port
	return controllerutil.SetControllerReference(app, deployment, r.Scheme)
}

// mutateService sets what we want and leaves alone what the server and others filled in.
func (r *WebAppReconciler) mutateService(app *webappv1.WebApp, service *corev1.Service) error {
	labels := map[string]string{"app": app.Name}
	setLabels(&service.ObjectMeta, labels)
	service.Spec.Selector = labels
	if len(service.Spec.Ports) != 1 {
		service.Spec.Ports = make([]corev1.ServicePort, 1)
	}
	service.Spec.Ports[0].Port = 80
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(app.Spec.Port)
	return controllerutil.SetControllerReference(app, service, r.Scheme)
}

// writeStatus writes the status if it differs from what the WebApp has.
func (r *WebAppReconciler) writeStatus(ctx context.Context, app *webappv1.WebApp, readyReplicas int32, ready metav1.Condition) error {
	before := app.Status.DeepCopy()
	app.Status.ReadyReplicas = readyReplicas
	app.Status.ObservedGeneration = app.Generation
	ready.ObservedGeneration = app.Generation
	meta.SetStatusCondition(&app.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before, &app.Status) {
		return nil
	}
	return r.Status().Update(ctx, app)
}

// isRolledOut tells whether every replica is of the latest template, observed and ready.
func isRolledOut(deployment *appsv1.Deployment, replicas int32) bool {
	status := deployment.Status
	return deployment.DeletionTimestamp.IsZero() &&
		status.ObservedGeneration == deployment.Generation &&
		status.Replicas == replicas && status.UpdatedReplicas == replicas && status.ReadyReplicas == replicas
}

// container finds the container of that name, or adds it.
func container(pod *corev1.PodSpec, name string) *corev1.Container {
	for i := range pod.Containers {
		if pod.Containers[i].Name == name {
			return &pod.Containers[i]
		}
	}
	pod.Containers = append(pod.Containers, corev1.Container{Name: name})
	return &pod.Containers[len(pod.Containers)-1]
}

func setLabels(object *metav1.ObjectMeta, labels map[string]string) {
	if object.Labels == nil {
		object.Labels = make(map[string]string, len(labels))
	}
	for key, value := range labels {
		object.Labels[key] = value
	}
}
