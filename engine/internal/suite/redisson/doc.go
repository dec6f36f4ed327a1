// Package redisson is the internal/suite of the wire that Pawl shares with Redisson: what each of
// its own tests proves of a lock there (the catalogue), proved here on a standalone server
// and on a cluster of one node, and a peer that sends what Redisson sends, byte for byte, to
// the same server. It needs a redis-server (see internal/redistest):
//
//	go test ./engine/internal/suite/redisson
//
// # Traps
//
// What can go wrong between two clients of these locks has a number, which comments of tests name. This
// is Pawl's side of each, and the tests that show it:
//
//	T1 messages are plain or sharded, as each process has decided
//	    engine/internal/suite/topology/sharded_wire_test.go:TestReleasesAreAnnouncedAndHeardAsTheModeSays
//	    engine/internal/suite/topology/sharded_wire_test.go:TestEnginesThatDoNotHearEachOtherTryNowAndThen
//	T2 a release without a message leaves others asleep
//	    engine/internal/suite/redisson/wire_test.go:TestReleaseOfPawlIsAnnouncedAsRedissonExpects
//	    engine/internal/suite/redisson/counts_test.go:TestAddPermitsWakesAWaiterThatNeedsTwo
//	    engine/internal/suite/redisson/counts_test.go:TestOneMessageOpensTheLatchForAll
//	    engine/internal/suite/redisson/permit_test.go:TestWaiterForTwoPermitsIsWoken
//	T3 a lock without an expiry
//	    engine/internal/suite/redisson/traps_test.go:TestLockWithoutAnExpiryIsHeld
//	    engine/internal/suite/redisson/traps_test.go:TestExpiryThatWasRemovedComesBackWithARenewal
//	T4 fields of the hash that Redisson does not know
//	    engine/internal/suite/redisson/traps_test.go:TestHashHasTheFieldsOfRedissonAndNoOther
//	T5 messages are numbers
//	    engine/internal/suite/redisson/wire_test.go:TestRedissonsMessageWakesPawl
//	    engine/internal/suite/redisson/counts_test.go:TestAddPermitsWakesAWaiterThatNeedsTwo
//	T6 a 0 wakes one thread, a 1 all readers
//	    engine/internal/suite/redisson/traps_test.go:TestMessagesOfAReadWriteLock
//	T7 a script that is sent again counts twice
//	    engine/internal/suite/faults/acquire_test.go:TestAcquireWhoseReplyIsCutIsInDoubtAndTheLockTakenAfresh
//	    engine/internal/suite/faults/release_test.go:TestUnlockWhoseReplyIsCutReleasesOnce
//	    engine/internal/suite/counters/history_test.go:TestNoPermitIsLostOrMade
//	    engine/internal/suite/counters/history_test.go:TestEveryCountDownCountsOnce
//	T8 owners of one process
//	    engine/internal/suite/redisson/others_test.go:TestOwnerIsWhatAContextCarries
//	    engine/internal/suite/reentry/contexts_test.go:TestReentry_GoroutinesUnderOneDo_ExcludeEachOther
//	T9 a try that is cancelled in flight
//	    engine/internal/suite/redisson/catalogue_test.go:TestTryLockCancelledInFlightLeavesNoRenewedLock
//	T10 one name as two kinds
//	    engine/internal/suite/kinds/kinds_test.go:TestEngine_NameOfAnotherKind_IsRefused
//	    engine/internal/suite/rw/rw_test.go:TestRWMutex_NameOfAMutex_IsRefused
//	    engine/internal/script/script_test.go:TestEveryScriptRefusesAForeignTypeWithoutTouchingIt
//	    engine/internal/script/counter_test.go:TestCounterOfWhatIsNoCount
//	T11 every waiter of a spin lock polls
//	    engine/internal/suite/redisson/traps_test.go:TestSpinWaitersOfAnEngineAskAsOne
//	T12 a lease of less than a millisecond
//	    engine/internal/script/script_test.go:TestLeaseIsRoundedUpToTheMillisecond
//	T13 clocks that are wrong
//	    engine/internal/suite/redisson/clock_test.go:TestAFairQueueDoesNotDependOnTheClocksOfItsProcesses
//	    engine/internal/suite/redisson/clock_test.go:TestPermitsDoNotDependOnTheClocksOfTheirProcesses
//	    engine/internal/suite/redisson/clock_test.go:TestNoCommandTellsTheServerTheTimeOfItsClient
//	T14 scores of a fair queue
//	    engine/internal/suite/redisson/fair_test.go:TestScoresOfAFairQueueDoNotDrift
//	    engine/internal/script/fair_test.go:TestFairServesTheHeadAndQueuesTheOthers
//	T15 a head of a fair queue that leaves, or is dead
//	    engine/internal/suite/redisson/fair_test.go:TestAHeadThatLeavesWithoutAWordHoldsUpNobodyForLong
//	    engine/internal/suite/redisson/fair_test.go:TestAbandonedHeadsOfAFairQueueAreTakenOutByTime
//	    engine/internal/suite/fair/fair_test.go:TestFairMutex_DeadHead_HoldsUpNobodyForLong
//	    engine/internal/script/fair_test.go:TestOneThatIsFarBehindAsksAgainWithinThreeSeconds
//	T16 unlock of a lock that has expired
//	    engine/internal/suite/redisson/gone_test.go:TestUnlockOfALockThatHasExpiredFails
//	T17 leases that a re-entry or an unlock shortens
//	    engine/internal/suite/reentry/lease_test.go:TestReentry_ShorterLease_DoesNotShortenTheLease
//	    engine/internal/suite/redisson/catalogue_test.go:TestGivingBackReentriesLeavesTheLeaseAlone
//	T18 leases, downgrade, upgrade and dead readers of a read-write lock
//	    engine/internal/suite/redisson/rw_test.go:TestAWritersReentryDoesNotAddItsLease
//	    engine/internal/suite/redisson/rw_test.go:TestReadersOfADeadProcessKeepAWriterOutForTheirLease
//	    engine/mutex_test.go:TestRWMutex_Downgrade_LetsNoWriterIn
//	    engine/mutex_test.go:TestRWMutex_ReaderBesideItsWriter_IsGranted
//	T19 a message between the refusal and the sleep
//	    engine/internal/suite/faults/wait_test.go:TestReleaseAtAnyPointOfTheSubscriptionWakesTheWaiter
//	T20 a reconnect
//	    engine/internal/suite/faults/wait_test.go:TestCutSubscriptionsComeBackAndEveryHeadTries
//	    engine/internal/suite/counters/outage_test.go:TestMessagesThatAreLostWithTheConnection
//	    engine/internal/suite/topology/moving_test.go:TestWaitersAreWokenAfterAPromotion
//	T21 the holder of a lock that is gone; a shard that is dead
//	    engine/internal/suite/faults/renew_test.go:TestOneForeignKeyAmongManyRenewedCostsOneHold
//	    engine/internal/suite/topology/shard_test.go:TestDeadShardDelaysNoOtherRenewals
//	T22 two kinds of one name, two channels
//	    engine/internal/suite/redisson/channels_test.go:TestAWaiterHearsTheChannelOfItsKind
//	T23 forms of replies
//	    engine/internal/driver/reply_test.go:TestAnswersAreReadForTheMachine
//	    engine/internal/suite/faults/garbage_test.go:TestLock_ScriptAnsweredWithGarbage_IsAnError
//	    resp/wire/codec_test.go:TestDecode_NotRESP2_IsRefused
//	T24 a count that is no number
//	    engine/internal/script/counter_test.go:TestCounterOfWhatIsNoCount
//	    engine/internal/suite/fenced/fenced_test.go:TestFencedMutex_CounterOfAnotherType_IsAnError
//	T25 databases share channels
//	    engine/internal/suite/redisson/wire_test.go:TestDatabasesShareChannelsAndNotKeys
//	T26 rights to keys and channels
//	    engine/internal/suite/topology/acl_test.go:TestTheDocumentedACLRuleIsEnoughAndNoMoreThanThat
//	    engine/internal/suite/topology/acl_test.go:TestTheDocumentedACLRuleOfAnRWMutexIsEnough
//	    engine/internal/suite/topology/acl_kinds_test.go:TestTheDocumentedACLRulesOfFairAndFencedLocksAreEnough
//	    engine/internal/suite/topology/acl_counts_test.go:TestTheDocumentedACLRulesOfCountsAreEnough
//	T27 names and slots
//	    engine/internal/suite/redisson/wire_test.go:TestChannelFollowsRedissonsBraceRule
//	    engine/internal/suite/counters/cluster_test.go:TestNamesInACluster
//	T28 replicas that are behind
//	    engine/internal/suite/topology/replica_test.go:TestNoReplicaIsAskedForAState
//	T29 the unlock latches of Redisson
//	    engine/internal/suite/redisson/keys_test.go:TestKeysOfRedissonBesideALockAreLeftAlone
//	T30 a latch that is deleted, or closed again at once
//	    engine/internal/suite/counters/latch_test.go:TestLatch_Deleted_IsNoticed
//	    engine/internal/suite/redisson/counts_test.go:TestALatchThatIsClosedAgainAtOnce
//	    engine/internal/suite/redisson/counts_test.go:TestCountsOfALatch
//	T31 thousands of expired permits
//	    engine/internal/script/permit_test.go:TestManyExpiredPermitsComeBack
//	    engine/internal/suite/redisson/permit_test.go:TestReleaseOfManyBesideExpiredOnes
//	T32 a reader that leaves its writer and the writer's renewals
//	    engine/internal/suite/redisson/renewals_test.go:TestAReaderThatLeavesItsWriterStopsNoRenewal
//	T33 a lock that is forced open or deleted
//	    engine/internal/suite/redisson/wire_test.go:TestForceUnlockByRedissonIsSurvived
//	    engine/internal/suite/loss/removal_test.go:TestHold_KeyDeleted_IsLostAtTheNextRenewal
//	    engine/internal/suite/redisson/gone_test.go:TestADeletedLockIsNoticedByItsHolder
//	    engine/internal/suite/redisson/gone_test.go:TestDeletedPermitsAreNoticed
//	T34 renewals that are counted by calls
//	    engine/internal/suite/redisson/concurrency_test.go:TestHeldLockIsAlwaysRenewedAmidChurn
//	T35 WAIT
//	    engine/internal/suite/durability/durability_test.go:TestGrantedLockIsOnTheReplicasThatWereAskedFor
//	    resp/internal/replication/lane_test.go:TestLane_Group_KeepsItsConnection
//	T36 too few replicas acknowledge
//	    engine/internal/suite/durability/durability_test.go:TestTooFewAcknowledgementsGiveTheLockBackOnce
//	    engine/internal/suite/durability/giveback_test.go:TestTooFewAcknowledgementsGiveEveryKindBackOnce
//	    engine/internal/suite/durability/giveback_test.go:TestADowngradeThatIsNotAcknowledgedLeavesTheWriter
//	T37 renewals of a name that is locked again and again
//	    engine/internal/suite/redisson/renewals_test.go:TestChurnAddsNoRenewals
//	T38 threads that queue for a few milliseconds only
//	    engine/internal/script/fair_test.go:TestOneWhoseTimeIsOverIsReported
//	    engine/internal/suite/interop/fair_test.go:TestAThreadWhosePlaceIsOverDoesNotSleepThroughARelease
//	    engine/internal/suite/fair/fair_test.go:TestFairMutex_LockHeldForLong_WaiterKeepsItsPlace
//	T39 channels of a slot that moves
//	    resp/layout_test.go:TestLayout_SlotsMove_ChannelsComeAndGo
//	    engine/internal/suite/topology/cluster_test.go:TestMigrationOfSlotsLosesNoLockAndNoWaiter
//	    engine/internal/suite/interop/moving_test.go:TestPlainChannelsSurviveTheMoveOfASlot
//	T40 an unlock that fails
//	    engine/internal/suite/faults/release_test.go:TestUnlockThatNeverReachedTheServerIsRepeated
//	    engine/internal/suite/redisson/wire_test.go:TestChannelFollowsRedissonsBraceRule
//	T41 a reader that leaves its writer and the writer's lease
//	    engine/internal/suite/redisson/traps_test.go:TestAReaderThatLeavesItsWriterKeepsTheLeaseOfThat
package redisson
