"""The score terms that depend on the node alone. `locality` also depends on the gang, so it is made for each leaf."""

from railwright.fabric.placement.nodes.terms import numa, packing, rails, score_term

TERMS: tuple[score_term.ScoreTerm, ...] = (rails.TERM, numa.TERM, packing.TERM)
