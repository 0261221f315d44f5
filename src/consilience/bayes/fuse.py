"""Bayesian fusion: the posterior given all observations, from experts' opinions on each of them.

Theorem 1 in the supplement of Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited
resources: with softmax(z_j) = P(c | x_j), class prior π and κ_c = p(x_1, …, x_N | c) / Π_j p(x_j | c),

    ln P(c | x_1, …, x_N) = log_softmax( Σ_j z_j + ln κ − (N − 1) ln π )

`fuse` computes the general form, ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ: experts may have learned from different
populations, and the posterior may be wanted for yet another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes import gpu_fuse
from consilience.bayes.cpu_fuse import fuse_in_blocks
from consilience.bayes.opinion_inputs import (
    Opinions,
    log_of,
    read_distribution,
    read_log_kappa,
    read_opinions,
    read_prior,
    read_weights_and_reliability,
    to_logits,
)
from consilience.bayes.posterior import active_experts, expert_evidence, kappa_of_several, log_posterior
from consilience.bayes.small_fuse import fuse_small
from consilience.core.errors import InputError
from consilience.core.settings import checked


@checked
def fuse(
    opinions: Any,
    prior: Any = None,
    *,
    target_prior: Any = None,
    present: Any = None,
    weights: Any = None,
    reliability: Any = None,
    log_kappa: Any = None,
    from_probabilities: bool = False,
    return_conflict: bool = False,
    out: Any = None,
    check: bool = True,
) -> Any:
    """Fuse experts' opinions: log_softmax( ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ ).

    A class to which the target prior or ln κ, or the prior or the opinion of an active expert, gives probability 0 has
    posterior exactly 0 (−inf). Where that excludes every class (a conflict), and where no expert is active, the answer
    is the target prior. An expert is active where it is present and its weight and reliability are not 0; the values of
    other experts (NaN, for example) are not read.

    Sums are made in at least 32 bits. Differentiable in opinions, weights, reliability and log_kappa. CUDA tensors go
    through a Triton kernel unless the environment variable CONSILIENCE_TRITON is 0.

    Args:
        opinions: A mapping expert → logits `[..., class]`, or one array or tensor `[..., expert, class]`. A constant
            added to all logits of an expert changes nothing.
        prior: The experts' class prior `[class]`, or one for each, `[expert, class]` or a mapping. None: uniform.
        target_prior: The class prior `[class]` where the posterior will be used. None: the mean of the experts' priors.
        present: Booleans `[..., expert]`, or a mapping expert → `[...]`; experts that it leaves out are present.
        weights: Weights w_j in the same forms; 1 where left out.
        reliability: The probability ρ that an expert is sound, in the same forms; 1 where left out. ln(ρ p + (1 − ρ) π)
            takes the place of ln p: 1 changes nothing, 0 is the same as missing.
        log_kappa: ln κ `[..., class]`, the experts' dependence; ignored where fewer than two are active. None: they are
            independent given the class.
        from_probabilities: Whether opinions are probabilities instead of logits.
        return_conflict: Whether to return the conflicts too.
        out: An array or tensor for the result, where no gradient is needed.
        check: False does not wait for a GPU to report NaN or +inf, so that calls can be queued or, after a first call
            with the same priors and shapes, recorded in a CUDA graph. Rows with such a value, or with a negative
            probability, are then NaN, and so are their gradients; that probabilities sum to one is not checked. Inputs
            other than the priors that are not tensors on the GPU are still copied there first. Without the kernel
            everything is checked all the same.

    Returns:
        The log-posterior `[..., class]`, an array for arrays, a tensor on the same device for tensors, in the type of
        the opinions. With `return_conflict` also booleans `[...]`.

    Raises:
        InputError: If shapes or names do not fit together, or if opinions, weights or log_kappa hold NaN or +inf.

    Example:
        >>> import numpy as np
        >>> image, audio = np.log([0.7, 0.2, 0.1]), np.log([0.5, 0.1, 0.4])
        >>> fused = fuse({"image": image, "audio": audio}, prior=[0.5, 0.25, 0.25])
        >>> np.exp(fused).round(3)
        array([0.745, 0.085, 0.17 ])
        >>> np.exp(fuse({"image": image, "audio": audio}, present={"audio": False})).round(3)
        array([0.7, 0.2, 0.1])
    """
    if weights is reliability is log_kappa is None and not from_probabilities:
        small = fuse_small(opinions, prior, target_prior, present, out)
        if small is not None:
            posterior, conflict = small if out is None else (out, small[1])
            return (posterior, conflict) if return_conflict else posterior
    given = read_opinions(opinions)
    priors = read_prior(prior, given.experts, given.classes, given.names)
    if target_prior is None:
        target = priors[0] if len(priors) == 1 else priors.mean(axis=0)
    else:
        target = read_distribution("target_prior", target_prior, given.classes)
    by_kernel = reliability is None and gpu_fuse.supports(given)
    check = check or not by_kernel
    w, rho = read_weights_and_reliability(given, present, weights, reliability, check=check, keep_mask=by_kernel)
    kappa = kappa_of_several(read_log_kappa(log_kappa, given, check=check), active_experts(w, rho), given.experts)
    if from_probabilities:
        given = to_logits(given, active_experts(w, rho), check=check)
    needs_grad = given.requires_grad or any(value is not None and value.requires_grad for value in (w, rho, kappa))
    gradient = torch.is_grad_enabled() and needs_grad
    result = _read_out(out, given, gradient)
    if by_kernel:
        logits = given.rows()
        posterior, conflict, broken = gpu_fuse.fuse_rows(logits, priors, target, w, kappa, out=result, check=check)
        if broken:  # the reference names the expert and the rows
            expert_evidence(logits, log_of(priors, given), w, label=given.label)
    elif gradient:
        logits = given.rows().to(given.compute_dtype)
        evidence, excluded = expert_evidence(logits, log_of(priors, given), w, rho, label=given.label)
        posterior, conflict = log_posterior(evidence.sum(1), excluded.any(1), log_of(target, given), kappa)
        posterior = posterior.to(given.dtype)
    else:
        posterior = _allocate(given) if result is None else result
        with torch.no_grad():
            conflict = fuse_in_blocks(given, log_of(priors, given), log_of(target, given), w, rho, kappa, posterior)
    shaped = given.shaped(posterior) if out is None else out
    return (shaped, given.shaped(conflict)) if return_conflict else shaped


def _read_out(out: Any, opinions: Opinions, gradient: bool) -> Tensor | None:
    """`out` as rows `[row, class]`."""
    if out is None:
        return None
    if gradient:
        raise InputError("out cannot be given where a gradient is needed: call fuse under torch.no_grad()")
    shape = (*opinions.leading, opinions.classes)
    wanted = np.ndarray if opinions.numpy else Tensor
    if not isinstance(out, wanted):
        raise InputError(f"out must be of the opinions' type, {wanted.__name__}, got {type(out).__name__}")
    tensor = torch.from_numpy(out) if isinstance(out, np.ndarray) else out
    if tensor.shape != shape or tensor.dtype != opinions.dtype or tensor.device != opinions.device:
        raise InputError(
            f"out must have shape {list(shape)} and type {opinions.dtype} on {opinions.device}, got "
            f"{list(tensor.shape)}, {tensor.dtype} on {tensor.device}"
        )
    if not tensor.is_contiguous():
        raise InputError("out must be contiguous")
    return tensor.view(len(opinions), opinions.classes)


def _allocate(opinions: Opinions) -> Tensor:
    shape = (len(opinions), opinions.classes)
    if opinions.device.type != "cpu" or opinions.dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=opinions.dtype, device=opinions.device)
    # NumPy requests large memory pages, which are allocated four times as fast as the small ones that torch requests.
    return torch.from_numpy(np.empty(shape, dtype=np.float32 if opinions.dtype == torch.float32 else np.float64))
