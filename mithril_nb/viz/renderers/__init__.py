"""The renderers of the values of other rooms, registered by type. Each file is imported on demand."""
