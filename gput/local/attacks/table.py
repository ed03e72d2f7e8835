"""HOSTILE CODE (attack tour): the attacks by name."""

from __future__ import annotations

from gput.local.attacks import (
    fake_gpu,
    late_write,
    lazy_scrub,
    poisoned_visit,
    replayed_evidence,
    rollback,
    stale_key,
    whole_gpu,
    wrong_vm,
)
from gput.local.attacks.attack import Attack

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        lazy_scrub.ATTACK,
        stale_key.ATTACK,
        replayed_evidence.ATTACK,
        fake_gpu.ATTACK,
        wrong_vm.ATTACK,
        whole_gpu.TROJAN_CODE,
        whole_gpu.MODEL_OVERWRITE,
        late_write.ATTACK,
        rollback.ATTACK,
        poisoned_visit.ATTACK,
    )
}
