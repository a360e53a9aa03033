package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WebAppSpec is what should run. The definition's schema fills in the defaults.
type WebAppSpec struct {
	// Image is the container image to run.
	Image string `json:"image"`
	// Replicas is how many pods run at the same time.
	Replicas int32 `json:"replicas"`
	// Port is what the container listens on.
	Port int32 `json:"port"`
}

// WebAppStatus is what was last seen of a WebApp.
type WebAppStatus struct {
	// ReadyReplicas is how many pods are ready; written when it is 0, too.
	ReadyReplicas int32 `json:"readyReplicas"`
	// ObservedGeneration is the generation of the spec that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions holds Ready.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WebApp is a stateless web application: an image that runs in a number of replicas behind a service.
// +kubebuilder:object:root=true
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebAppSpec   `json:"spec"`
	Status WebAppStatus `json:"status,omitempty"`
}

// WebAppList is a list of WebApps.
// +kubebuilder:object:root=true
type WebAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WebApp `json:"items"`
}
