//! Accepted connections, kept so that all can be cut at once.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream as StdStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::engine::Fault;

/// Second handles of the open sockets.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, StdStream>>,
    next: AtomicU64,
}

impl Connections {
    /// Gives how many are open.
    pub(crate) fn count(&self) -> usize {
        self.open().len()
    }

    /// Shuts every socket down in both directions; their tasks end by themselves.
    pub(crate) fn close_all(&self) {
        for socket in self.open().values() {
            // An error means that the peer was faster.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn track(self: &Arc<Self>, stream: TcpStream) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let socket = stream.into_std()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open().insert(id, socket.try_clone()?);
        let guard = Guard {
            id,
            connections: Arc::clone(self),
        };
        Ok(Connection {
            stream: TcpStream::from_std(socket)?,
            _guard: guard,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, StdStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Guard {
    id: u64,
    connections: Arc<Connections>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.connections.open().remove(&self.id);
    }
}

/// Listener that tracks what it accepts and refuses while told so.
pub(crate) struct TrackedListener {
    inner: TcpListener,
    connections: Arc<Connections>,
    fault: watch::Receiver<Fault>,
}

impl TrackedListener {
    pub(crate) fn new(
        inner: TcpListener,
        connections: Arc<Connections>,
        fault: watch::Receiver<Fault>,
    ) -> Self {
        Self {
            inner,
            connections,
            fault,
        }
    }
}

impl Listener for TrackedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.inner).await;
            if *self.fault.borrow() == Fault::Refuse {
                continue;
            }
            match self.connections.track(stream) {
                Ok(connection) => return (connection, address),
                Err(error) => tracing::debug!(%error, "can't keep a connection"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// An accepted connection.
pub(crate) struct Connection {
    stream: TcpStream,
    _guard: Guard,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
