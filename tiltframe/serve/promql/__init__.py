"""PromQL over stores: an expression is either evaluated exactly, by merging states, or rejected with a message.

text ──▶ `parse` ──▶ `evaluate`, node by node: `select`, `functions`, `cells` ──▶ `response`
"""
