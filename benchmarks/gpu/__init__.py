"""What `make gpu-check` measures on a CUDA device, each with random weights of a real model's shape."""
