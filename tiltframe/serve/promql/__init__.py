"""PromQL over stores: an expression is answered exactly, by merges of states, or rejected with a sentence.

text ──▶ `parse` ──▶ `evaluate`, node by node: `select`, `functions`, `cells` ──▶ `response`
"""
