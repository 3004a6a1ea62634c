"""torch.nn.functional.scaled_dot_product_attention, each back end forced."""
