//! A CustomResourceDefinition that is no JSON.

variants::variant!(|descriptor| descriptor.crds = vec!["apiVersion: apiextensions.k8s.io/v1".into()]);
