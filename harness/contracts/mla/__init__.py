"""Multi-head latent attention (DeepSeek, Kimi): absorbed decode, prefill, and the K assembly before prefill."""
