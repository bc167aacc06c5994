"""How blocks are added to a model, and how its connections are annotated."""
