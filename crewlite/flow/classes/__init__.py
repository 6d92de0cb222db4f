"""Classes as flows: methods that start when others have finished, in runs that can be resumed."""
