"""PromQL over stores: an expression is answered by merges of states, exactly, or refused in a sentence.

text ──▶ `parse` ──▶ `evaluate`, node by node: `select`, `functions`, `cells` ──▶ `response`
"""
