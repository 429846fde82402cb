"""What benchmarks/peers.py is made of: environments, model files, contestants, results; children/ has the engines."""
