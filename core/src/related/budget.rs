//! How much of what was found a snapshot may carry.

use super::OBJECTS_MAX;

/// What is left of a snapshot's share for related objects.
#[derive(Debug)]
pub struct Budget {
    objects: usize,
    bytes: usize,
}

impl Budget {
    /// For objects of this many bytes of JSON in all.
    pub fn new(bytes: usize) -> Self {
        Self { objects: OBJECTS_MAX, bytes }
    }

    /// How many of these objects, by their sizes, it still holds. From the first on that it does not, it holds none, whatever is asked for
    /// afterwards: what is carried must not depend on which of them happen to be small.
    pub fn take(&mut self, sizes: impl IntoIterator<Item = usize>) -> usize {
        let mut taken = 0;
        for size in sizes {
            if self.objects == 0 || size > self.bytes {
                *self = Self { objects: 0, bytes: 0 };
                break;
            }
            *self = Self { objects: self.objects - 1, bytes: self.bytes - size };
            taken += 1;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_carried_in_order_until_one_is_too_many_or_too_large() {
        let mut budget = Budget::new(100);
        assert_eq!(budget.take([60, 30]), 2);
        assert_eq!(budget.take([20, 5]), 0, "the first does not fit");
        assert_eq!(budget.take([1]), 0, "nor does anything after it");
        let mut budget = Budget::new(usize::MAX);
        assert_eq!(budget.take(std::iter::repeat_n(1, OBJECTS_MAX + 1)), OBJECTS_MAX);
    }
}
