"""The tables and figures of the paper of FFT-GP, and what proves that we made each;
listed by repro.artefacts.
"""

from __future__ import annotations

from repro.artefacts import Artefact


def drawn(notebook, name, title, **evidence):
    """An artefact that a notebook of notebooks/fft-gp draws."""
    page = f"notebooks/fft-gp/{notebook}.html"
    return Artefact("fft-gp", name, title, page, **evidence)


ARTEFACTS = (
    Artefact(
        "fft-gp",
        "Figure 1",
        "Cross-silo federated learning",
        "domains.html",
        figure=True,
    ),
    Artefact(
        "fft-gp", "Method", "The cycle of four steps", "domains.html", figure=True
    ),
    drawn("tables", "Table 2", "Local models on their own domain"),
    drawn("tables", "Table 3", "Global model on the domain left out"),
    *(
        drawn(
            "fairness",
            f"Figure 6({k})",
            f"Fairness of three aggregation rules by round, {d}",
            figure=True,
            cells=("gap_std_val", "gap_std_test"),
        )
        for k, d in zip("abcd", ("PACS", "VLCS", "OfficeHome", "TerraInc"))
    ),
    drawn(
        "foundation",
        "Foundation models",
        "FedCLIP and PromptFL beside a frozen CLIP",
        figure=True,
        cells=("in_domain_acc_pct", "out_of_domain_acc_pct", "bytes_up"),
    ),
)
