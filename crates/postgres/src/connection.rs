//! The connection, and the small runtime that drives it while a caller waits.

use std::future::{self, Future};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{AsyncMessage, Error};

use crate::recent::Recent;

/// How long the end of a session may take: a server that does not read is left alone.
const GOODBYE: Duration = Duration::from_secs(1);

/// A runtime for one session.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Results go to the caller only: notices and notifications are dropped.
type Messages = Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> + Send>;

/// One step of what is waited for; true once the server has ended the session.
type Step<'a> = dyn FnMut(&mut Context<'_>, bool) -> Poll<Result<(), Error>> + 'a;

pub(crate) struct Connection {
    runtime: Runtime,
    messages: Messages,
    /// Why the server ended the session, if this came together with a complete answer: the next request fails with it.
    ended: Option<Error>,
    pub(crate) recent: Recent,
    /// Whether the texts that it sends are kept ([`crate::sent_since`]): those of tests stand for other programs.
    pub(crate) is_noted: bool,
}

impl Connection {
    /// Keeps a text that is sent.
    pub(crate) fn note(&self, text: &str) {
        if self.is_noted {
            crate::sent::note(text);
        }
    }

    pub(crate) fn new<S, T>(runtime: Runtime, mut connection: tokio_postgres::Connection<S, T>) -> Connection
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Connection {
            runtime,
            messages: Box::new(move |cx| connection.poll_message(cx)),
            ended: None,
            recent: Recent::default(),
            is_noted: true,
        }
    }

    /// Waits for what the connection brings about.
    pub(crate) fn block_on<F, T>(&mut self, future: F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut future = pin!(future);
        let mut answer = None;
        self.drive(&mut |cx, _| future.as_mut().poll(cx).map_ok(|value| answer = Some(value)))?;
        Ok(answer.expect("what is driven to its end has an answer"))
    }

    /// Drives the connection until `poll` is through. One copy for all kinds of answers: the runtime is a lot of code.
    fn drive(&mut self, poll: &mut Step<'_>) -> Result<(), Error> {
        let (messages, ended) = (&mut self.messages, &mut self.ended);
        self.runtime.block_on(future::poll_fn(|cx| {
            let has_ended = loop {
                match messages(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    // A server that ends a session reports why before it closes the socket, and that is the answer.
                    Poll::Ready(Some(Err(error))) => {
                        let cause = ended.take().unwrap_or(error);
                        return Poll::Ready(match poll(cx, true) {
                            Poll::Ready(Ok(())) => {
                                *ended = Some(cause);
                                Ok(())
                            }
                            Poll::Ready(Err(reported)) if reported.as_db_error().is_some() => Err(reported),
                            _ => Err(cause),
                        });
                    }
                    Poll::Ready(None) => break true,
                    Poll::Pending => break false,
                }
            };
            match poll(cx, has_ended) {
                Poll::Ready(Err(reported)) if reported.is_closed() => {
                    Poll::Ready(Err(ended.take().unwrap_or(reported)))
                }
                other => other,
            }
        }))
    }

    /// Sends what is left, Terminate last, when the last client is gone.
    pub(crate) fn finish(&mut self) {
        let mut late = {
            let _guard = self.runtime.enter();
            Box::pin(tokio::time::sleep(GOODBYE))
        };
        let _ = self.drive(&mut |cx, has_ended| match has_ended || Pin::new(&mut late).poll(cx).is_ready() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        });
    }
}
