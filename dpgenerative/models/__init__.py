"""Generative models of cells: densities and samplers that know nothing of privacy."""
