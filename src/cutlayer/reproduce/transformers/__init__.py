"""Transformers under compression: a GPT on text and a ViT on images, trained with ten clients.

The paper has convolutional nets alone. Activations of tokens are signed, have outlier channels and no
neighbours, so what holds for feature maps need not hold for them.
"""
