//! Several VMs over one shared data.
