//! How long a term lasts, and how often it is renewed.

use std::time::Duration;

/// The longest wait between two attempts of a standby is the retry period times one more than this (client-go `JitterFactor`).
pub(super) const JITTER: f64 = 1.2;

/// client-go's three numbers (`LeaderElectionConfig`), checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Numbers with which no term could be kept, or two could overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTiming {
    /// A Lease carries whole seconds: others would wait for less than what was meant.
    #[error("the lease duration must be whole seconds, and at least one")]
    Fraction,
    /// The holder must give up before others may take over.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseDuration,
    /// There must be time for a second attempt.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    RenewDeadline,
}

impl Timing {
    /// What Kubernetes' own components use.
    pub const DEFAULT: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    /// Takes them if they go together.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, InvalidTiming> {
        if lease_duration.subsec_nanos() != 0 || lease_duration.is_zero() {
            return Err(InvalidTiming::Fraction);
        }
        if lease_duration <= renew_deadline {
            return Err(InvalidTiming::LeaseDuration);
        }
        if renew_deadline <= retry_period.mul_f64(JITTER) {
            return Err(InvalidTiming::RenewDeadline);
        }
        Ok(Self { lease_duration, renew_deadline, retry_period })
    }

    /// How long others wait, counted from when they last saw the record change.
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// How long a renewal permits writes, counted from before it was sent.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// How often the holder renews, and others try.
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }
}
