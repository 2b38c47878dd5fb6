"""PromQL over stores: an expression is answered by merges of states, exactly, or refused in a sentence.

text ──▶ `parse` ──▶ `evaluate`, node by node ──▶ `response`
                        `select`: levels, one read a selector, cells of states (series × moments)
                        `aggregate`, `operators`, `subqueries`: merges of cells, or arrays of values
"""
