"""The synthetic reasoning experiments: one-layer models on `iha.tasks`, in sweeps that survive being killed."""
