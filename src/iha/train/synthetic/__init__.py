"""The synthetic reasoning experiments: one-layer models on the tasks of `iha.tasks`, in sweeps that survive being killed."""
