"""How functions, methods, classes and clients come to be guarded."""
