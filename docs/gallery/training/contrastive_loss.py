"""Contrastive loss of images and texts.

The loss of CLIP: each image must find its text in the batch, and each text its image. One matrix of similarities serves
both directions; look at how the two normalizers reduce it along different axes.
"""

import jax
import jax.numpy as jnp

import mithril_nb as ml


def normalize(x):
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def loss(params, images, texts):
    with jax.named_scope("image"):
        images = normalize(images @ params["image"])
    with jax.named_scope("text"):
        texts = normalize(texts @ params["text"])
    with jax.named_scope("similarity"):
        images *= jnp.exp(params["log_scale"])
        logits = images @ texts.T
    with jax.named_scope("loss"):
        of_images = jax.nn.logsumexp(logits, axis=1)
        of_texts = jax.nn.logsumexp(logits, axis=0)
        return ((of_images + of_texts) / 2 - (images * texts).sum(1)).mean()


array = jax.ShapeDtypeStruct
params = {
    "image": array((512, 128), jnp.float32),
    "text": array((384, 128), jnp.float32),
    "log_scale": array((), jnp.float32),
}
p = ml.inspect(jax.value_and_grad(loss), params, array((256, 512), jnp.float32), array((256, 384), jnp.float32))
