"""The renderers of the values of the rooms below, registered by type. Each file is imported on demand."""
