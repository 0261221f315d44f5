"""Bayesian fusion: the posterior given all observations, from the experts' opinions on each of them.

Theorem 1 in the supplement of Jørgensen, Tětková, Hansen 2024, Image classification with symbolic hints using limited
resources: with softmax(z_j) = P(c | x_j), class prior π and κ_c = p(x_1, …, x_N | c) / Π_j p(x_j | c),

    ln P(c | x_1, …, x_N) = log_softmax( Σ_j z_j + ln κ − (N − 1) ln π )

`fuse` computes the general form, ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ: experts may have learnt from different
populations, and the posterior may be wanted for yet another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from consilience.bayes import gpu_fuse as kernels
from consilience.bayes.cpu_fuse import fuse_blocks
from consilience.bayes.opinion_inputs import (
    Opinions,
    log_of,
    read_distribution,
    read_log_kappa,
    read_opinions,
    read_present,
    read_prior,
    read_weights,
    to_logits,
)
from consilience.bayes.posterior import conclude, speakers, weigh
from consilience.core.errors import InputError


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
    """The log-posterior `[..., class]`: log_softmax( ln π_target + Σ_j w_j (z_j − ln π_j) + ln κ ).

    opinions: a mapping expert → logits `[..., class]`, or one array or tensor `[..., expert, class]`; with
    `from_probabilities`, probabilities instead. An offset added to all of an expert's logits changes nothing.
    prior: the experts' class prior `[class]`, or one for each, `[expert, class]` or a mapping; None: uniform.
    target_prior: the prior `[class]` where the posterior will be used; None: the mean of the experts' priors, which is
    their prior where they share one.
    present, weights, reliability: `[..., expert]`, or a mapping expert → `[...]` in which those left out are present,
    of weight 1, reliable. What a missing expert holds (NaN, say) is not read. With reliability ρ, the probability
    that an expert is sound, it speaks ln(ρ p + (1 − ρ) π) instead of ln p: 1 changes nothing, 0 is as good as missing.
    log_kappa: ln κ `[..., class]`, what the experts' dependence adds; None: independent given the class.

    A class to which the target prior or ln κ, or the prior or the opinion of an expert who is heard, gives
    probability 0 has posterior exactly 0 (−inf). Where that leaves no class, and where no expert is heard, the answer
    is the target prior; `return_conflict` also returns where the former happened, booleans `[...]`.

    Arrays give an array, tensors a tensor on the same device, in the type of the opinions; sums are made in at least
    32 bits. Differentiable in opinions, weights, reliability and log_kappa. `out` takes the result where no gradient is
    wanted. CUDA tensors go through a Triton kernel unless the environment variable CONSILIENCE_TRITON is 0.

    Opinions, weights and log_kappa that hold NaN or +inf are refused. To see that, a GPU's answer is waited for; with
    `check=False` the kernel's is not, so that it can be queued or, after a first call with the same priors and shapes,
    recorded in a CUDA graph. The answer is then NaN in every row that has such a value or a negative probability, and
    so are its gradients; that probabilities sum to one is not checked. What does not lie on the GPU as a tensor, the
    priors aside, is still copied there first. Elsewhere than in the kernel everything is checked all the same.

    >>> import numpy as np
    >>> image, audio = np.log([0.7, 0.2, 0.1]), np.log([0.5, 0.1, 0.4])
    >>> fused = fuse({"image": image, "audio": audio}, prior=[0.5, 0.25, 0.25])
    >>> np.exp(fused).round(3)
    array([0.745, 0.085, 0.17 ])
    >>> np.exp(fuse({"image": image, "audio": audio}, present={"audio": False})).round(3)
    array([0.7, 0.2, 0.1])
    """
    given = read_opinions(opinions)
    priors = read_prior(prior, given.experts, given.classes, given.names)
    if target_prior is None:
        target = priors[0] if len(priors) == 1 else priors.mean(axis=0)
    else:
        target = read_distribution("target_prior", target_prior, given.classes)
    by_kernel = reliability is None and kernels.serves(given)
    check = check or not by_kernel
    there = read_present(present, given, check=check)
    w = read_weights("weights", weights, given, there, check=check)
    rho = read_weights("reliability", reliability, given, there)
    if w is None and there is not None:
        w = there if by_kernel else there.to(given.wide)
    kappa = read_log_kappa(log_kappa, given, check=check)
    if from_probabilities:
        given = to_logits(given, speakers(w, rho), check=check)
    followed = [one is not None and one.requires_grad for one in (w, rho, kappa)]
    gradient = torch.is_grad_enabled() and (given.requires_grad or any(followed))
    result = _read_out(out, given, gradient)
    if by_kernel:
        logits = given.rows()
        posterior, conflict, broken = kernels.fuse_rows(logits, priors, target, w, kappa, out=result, check=check)
        if broken:  # the reference says which expert and which rows
            weigh(logits, log_of(priors, given), w, label=given.label)
    elif gradient:
        log_target = log_of(target, given)
        evidence, barred = weigh(given.rows().to(given.wide), log_of(priors, given), w, rho, label=given.label)
        posterior, conflict = conclude(evidence.sum(1), barred.any(1), log_target, kappa)
        posterior = posterior.to(given.dtype)
    else:
        posterior = _allocate(given) if result is None else result
        with torch.no_grad():
            conflict = fuse_blocks(given, log_of(priors, given), log_of(target, given), w, rho, kappa, posterior)
    shaped = given.shaped(posterior) if out is None else out
    return (shaped, given.shaped(conflict)) if return_conflict else shaped


def _read_out(out: Any, opinions: Opinions, gradient: bool) -> Tensor | None:
    """`out` as the rows `[row, class]` to write into."""
    if out is None:
        return None
    if gradient:
        raise InputError("out cannot be given where a gradient is wanted: call fuse under torch.no_grad()")
    shape = (*opinions.leading, opinions.classes)
    wanted = np.ndarray if opinions.numpy else Tensor
    if not isinstance(out, wanted):
        raise InputError(f"out must be what the opinions are, {wanted.__name__}, got {type(out).__name__}")
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
    # NumPy asks for large pages, which are there four times as fast as the small ones that torch gets.
    return torch.from_numpy(np.empty(shape, dtype=np.float32 if opinions.dtype == torch.float32 else np.float64))
